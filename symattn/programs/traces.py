"""Judge a trace: its output, and its weights, scores and logarithms of sums, each by a bound that is proved for every
implementation in the precision."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from symattn.arrays.enclosure import Enclosure
from symattn.arrays.formats import FORMATS, HALF, Format
from symattn.arrays.precision import Contract, Precision
from symattn.attention.flow import STEPS_TO_BLAME
from symattn.attention.spec import Attention
from symattn.bounds.case_result import UNFIT, shares
from symattn.bounds.judgement import Measured
from symattn.bounds.mistake import Compute, Mistake
from symattn.bounds.reference import float64_outputs, run
from symattn.bounds.scores import score_errors
from symattn.bounds.sharp.sample import chosen, only
from symattn.bounds.threads import one_blas_thread
from symattn.document.codec import changed_fields
from symattn.document.errors import InputError, Refused, Undecided
from symattn.document.evidence import Grade, Verdict
from symattn.programs import closeness, trace_files
from symattn.programs.frameworks import Tensor, Tensors
from symattn.programs.frameworks import read as numbers
from symattn.programs.question import Question
from symattn.verification.arithmetic.suspects import BitSample, explained, share_left
from symattn.verification.definitions import lse
from symattn.verification.definitions.definition_mistakes import changes
from symattn.verification.diagnosis.screening import LITTLE, plainest
from symattn.verification.report import Check, Fault, Report

_FEW = 8  # rows whose logarithms are judged, by balls, which are slow


def worst_share(
    out: Tensor, inputs: Tensors, spec: Attention, precision: Precision, rows: Sequence[int]
) -> float:
    """Return the largest error relative to the worst-case bound; ∞ for a wrong shape."""
    result = closeness.measured(out, inputs, spec, precision, rows)
    return float("inf") if result is None else float(result.ratios.max(initial=0.0))


def of_lse(
    piece: trace_files.TracePiece, precision: Precision, rows: Sequence[int]
) -> tuple[str, float]:
    """Describe what is wrong with logarithms of sums in some rows, or ""; and return the largest error / allowed."""
    few = list(rows)[:: max(1, len(rows) // _FEW)]
    return closeness.logarithms(piece.made["lse"], piece.inputs, piece.spec, precision, few)


def of_weights(
    piece: trace_files.TracePiece, precision: Precision, rows: Sequence[int]
) -> tuple[str, float]:
    """Describe what is wrong with the weights in ``rows``, or ""; and return the largest error / allowed.

    Weights are the output for values V = I.
    """
    n_k = piece.inputs["k"].shape[-2]
    inputs = {**piece.inputs, "v": np.eye(n_k).astype(piece.inputs["q"].dtype)}
    result = closeness.close_to_exact(
        Question(piece.made["weights"], inputs, piece.spec, precision, rows=rows), "weights"
    )
    share = worst_share(piece.made["weights"], inputs, piece.spec, precision, rows)
    return result, share


def of_scores(
    piece: trace_files.TracePiece, precision: Precision, rows: Sequence[int]
) -> tuple[str, float]:
    """Judge the scores before the softmax in the same way, except those that a mask forbids.

    Raises ``InputError`` if they cannot be enclosed.
    """
    values, dtype, _ = numbers(piece.made["scores"])
    # Scores may be stored in a wider type than the inputs.
    storage = Format(dtype) if dtype in FORMATS else precision.input
    got = values[list(rows), :]
    try:
        result = measure_scores(
            *only(piece.spec, trace_files.floats(piece.inputs), rows), got, precision, storage
        )
    except (Refused, Undecided) as error:
        raise InputError(
            f"scores are not judged for this attention: {error}; hint: give a file without them"
        ) from None
    if not result.beyond:
        return "", float(result.ratios.max(initial=0.0))
    at = result.worst
    words = (
        # Judged like the output: by what no arithmetic can give.
        f"{int((result.ratios > 1).sum())} of {result.ratios.size} scores are beyond what any implementation in"
        f" {precision.name}{precision.contracted} can give\nThe worst is scores{[rows[at[0]], at[1]]}: got"
        f" {got[at]:.10g}, exact {result.near[at]:.10g}, at most {result.allowed[at]:.2g} is allowed"
    )
    return words, float(result.ratios[at])


def measure_scores(
    spec: Attention, inputs: closeness.Arrays, got: np.ndarray, precision: Precision, stored: Format
) -> Measured:
    """Compare scores (…, n_q, n_k) as the softmax receives them, in the format ``stored``, with the worst case.

    Each may be off by τ of ``scores``, and by storing it; forbidden scores are not judged. Raises ``Refused`` or
    ``Undecided`` if they cannot be enclosed.
    """
    result = run(spec, inputs, kind=Enclosure)
    tau = np.asarray(score_errors(result, precision).tau, dtype=float)
    exact = result.final_scores
    # Storing a score within τ of the exact one adds u relative to it, and η near 0.
    largest = np.abs(exact.mid) + exact.rad + tau
    allowed = tau + float(stored.u) * largest + float(stored.eta)
    ratios = np.where(result.allowed, shares(got, exact.mid, exact.rad, allowed)[0], 0.0)
    return Measured(ratios, exact.mid, allowed)


#: The judge of each array, and the most keys for it: balls are slow, and weights are the output for V = I.
Look = Callable[[trace_files.TracePiece, Precision, Sequence[int]], tuple[str, float]]
FURTHER: Mapping[str, tuple[Look, int]] = {
    "lse": (of_lse, 4096),
    "weights": (of_weights, 2048),
    "scores": (of_scores, 2**20),
}


# -- the verdict -------------------------------------------------------------------------------------------------------
# ``verify_trace``: compare the output of an earlier run with the specification's for the same q, k and v.

#: Queries of each head that are judged, and the probability of a false alarm.
ROWS, ALPHA = 32, 1e-9
_CHOSEN = 2.0**-10  # the share of the probability alpha for the queries ``also``
#: Choices of queries ``also`` beyond which a probability divided by their number is no normal float64.
_MOST_CHOICES = 2**900
#: The step in which a fault of each array is.
_STEP = {"o": "output", "lse": "lse", "weights": "weights", "scores": "score"}
#: The arrays in words.
_NAMED = {"o": "output", "lse": "logarithms of sums", "weights": "weights", "scores": "scores"}
_ROWS = 48  # queries from which a cause is sought
# most entries of the inputs for which a cause is sought, since hundreds of mistakes are tried
_ENTRIES = 2**18
#: The note on what a trace cannot say.
_RAN = "Nothing was run: the numbers of the file are judged, and the program that made them is unknown."


@one_blas_thread
def verify_trace(
    path: str,
    spec: Attention | None = None,
    *,
    precision: str | Precision | None = None,
    contract: Contract | None = None,
    layout: str | None = None,
    rows: int | Sequence[int] = ROWS,
    alpha: float = ALPHA,
    also: Mapping[tuple[int, ...], Sequence[int]] | None = None,
    command: str = "",
) -> Report:
    """Return whether o in the file is what ``spec`` gives for q, k and v in it, in ``rows`` of every head.

    ``path`` is a .safetensors or .npz file with q (…, n_q, d_k), k (…, n_k, d_k), v (…, n_k, d_v), o (…, n_q, d_v), an
    axis of heads before the last two if there are several, and the other inputs of the specification. ``lse``,
    ``weights`` and ``scores`` in it are judged as well. The precision is by default that of q. Each head is judged as
    ``assert_close_to_exact`` judges an output, with ``alpha`` divided among them; so the output of a correct
    implementation is flagged with a probability of at most ``alpha``, and never by the worst-case bound. If one mistake
    explains what is wrong, the report names it. ``also`` holds queries to judge in addition to ``rows``, by the index
    of a head; they may be chosen by the contents of the output, since ``alpha`` is corrected for the choice.
    Raises ``InputError`` for a file that cannot be read or is damaged, and for arrays that do not fit the
    specification.
    """
    # The default is plain attention.
    spec = spec or Attention()
    arrays = trace_files.read(path, spec, layout)
    dtype = arrays["q"].dtype.name
    # Integers and quantised types say nothing about how sums are rounded.
    if precision is None and dtype not in FORMATS:
        raise InputError(
            f"{path}: q is of {dtype}, which says nothing about the arithmetic; hint: --dtype float32"
        )
    judged = _JudgedTrace(
        precision or dtype, contract, rows, alpha, trace_files.count(spec, arrays), also or {}
    )
    # Heads one after another, since files may be larger than the memory.
    for piece in trace_files.pieces(spec, arrays):
        judged.look(piece)
    heads = judged.tallies.get("o", _Tally()).seen
    shapes = ", ".join(f"{n} {' × '.join(map(str, a.shape))}" for n, a in arrays.items())
    return Report(
        Verdict.FAULT if (faults := tuple(judged.faults())) else Verdict.NO_FAULT,
        Path(path).name,
        judged.precision.words,
        f"{shapes}; {judged.looked} queries{f' of each of {heads} heads' if heads != 1 else ''}",
        0,
        faults,
        tuple(judged.checks()),
        (_RAN, *judged.notes()),
        command=command,
        fields=changed_fields(spec),
    )


@dataclass
class _Tally:
    """The number of pieces in which an array was judged, the number of wrong ones, and the first fault."""

    seen: int = 0
    wrong: int = 0
    worst: float = 0.0
    first: Fault | None = None


@dataclass
class _JudgedTrace:
    """Progress through a trace, and the findings so far."""

    arithmetic: str | Precision
    contract: Contract | None
    rows: int | Sequence[int]
    whole: float  # the probability alpha for all pieces together
    pieces: int
    also: Mapping[tuple[int, ...], Sequence[int]]
    tallies: dict[str, _Tally] = field(default_factory=lambda: defaultdict(_Tally))
    looked: int = 0
    left_out: dict[str, int] = field(default_factory=dict)

    @property
    def precision(self) -> Precision:
        """The arithmetic in which the trace is judged."""
        return Precision.of(self.arithmetic, self.contract)

    def look(self, piece: trace_files.TracePiece) -> None:
        """Judge one piece."""
        rows = chosen(piece.spec, piece.inputs, self.rows)
        more = self.also.get(piece.place, ())
        # Rows chosen by their content need a smaller α, and are judged apart.
        words = self._check_trace_output(piece, rows, sorted({*more} - {*rows}))
        rows = sorted({*rows, *more})
        self.looked = max(self.looked, len(rows))
        share = worst_share(piece.made["o"], piece.inputs, piece.spec, self.precision, rows)
        self._record_piece_check("o", words, share, piece)
        for name, (judge, most) in FURTHER.items():
            if name not in piece.made:
                continue
            # Weights of many keys are more numbers than inputs.
            if piece.inputs["k"].shape[-2] > most:
                self.left_out[name] = most
            else:
                self._record_piece_check(name, *judge(piece, self.precision, rows), piece)

    def _check_trace_output(
        self, piece: trace_files.TracePiece, rows: Sequence[int], more: Sequence[int]
    ) -> str:
        """Describe what is wrong in ``rows``, else in ``more``, which may be chosen by the contents of the output."""
        n = int(piece.inputs["q"].shape[-2])
        alpha = self.whole / max(self.pieces, 1)
        every = len(rows) == n
        words = self._describe_rows_beyond_bound(
            piece, None if every else rows, alpha * (1 - _CHOSEN) if more else alpha
        )
        if words or not more:
            return words
        # There are fewer ways to choose them.
        ways = n ** (len(more) + 1)
        # Beyond the range of floats no sharp limit is left: the worst case alone decides.
        chosen_alpha = alpha * _CHOSEN / ways if ways < _MOST_CHOICES else None
        return self._describe_rows_beyond_bound(piece, more, chosen_alpha)

    def _describe_rows_beyond_bound(
        self, piece: trace_files.TracePiece, rows: Sequence[int] | None, alpha: float | None
    ) -> str:
        return closeness.close_to_exact(
            Question(
                piece.made["o"],
                piece.inputs,
                piece.spec,
                self.arithmetic,
                self.contract,
                alpha,
                rows,
            )
        )

    def _record_piece_check(
        self, name: str, words: str, share: float, piece: trace_files.TracePiece
    ) -> None:
        """Record the result of a check of a piece."""
        tally = self.tallies[name]
        tally.seen, tally.worst, tally.wrong = (
            tally.seen + 1,
            max(tally.worst, share),
            tally.wrong + bool(words),
        )
        # The first fault, unless a later one is certain and the first one is not.
        if words and (tally.first is None or (share > 1 and not tally.first.certified)):
            said = ". ".join(words.splitlines())
            said += f" (element {list(piece.place)} of the batch and heads)" if piece.place else ""
            result = (
                _find_mistake_in_trace(piece, self.precision, name) if name != "scores" else None
            )
            if result is None:
                outcome = "; no single known mistake explains it" if name != "scores" else ""
                fault = Fault(_STEP[name], None, f"{said}{outcome}")
            else:
                mistake, left = result
                words = f"{mistake.cause}: that explains {1 - left:.1%} of it. {said}"
                fault = Fault(mistake.step, mistake.cause, words)
            tally.first = replace(fault, certified=share > 1)

    def faults(self) -> Iterable[Fault]:
        """Yield the first fault of each array, with the number of wrong heads."""
        result = [(tally, tally.first) for tally in self.tallies.values() if tally.first]
        for tally, fault in sorted(result, key=lambda item: STEPS_TO_BLAME.index(item[1].step)):
            count = f"; wrong in {tally.wrong} of {tally.seen} heads" if tally.seen > 1 else ""
            yield replace(fault, message=fault.message + count)

    def checks(self) -> Iterable[Check]:
        """Yield a check for each array that was judged."""
        for name, tally in self.tallies.items():
            grade = Grade.REFUTED if tally.worst > 1 else Grade.SAMPLED
            yield Check(_NAMED[name], grade, tally.seen, tally.wrong, tally.worst)

    def notes(self) -> Iterable[str]:
        """Yield important notes."""
        if self.precision.input.name in HALF and self.contract != "eager":
            law = "independent roundings to nearest, with sums in float32"
            yield f"The output must be within {law}, except with a probability of at most {self.whole:g}."
        for name, most in self.left_out.items():
            yield f"Not judged: the {_NAMED[name]}, since there are more than {most} keys."


# -- the one mistake that explains a wrong array, by how far it reduces the distance from the definition ---------------
# with the share of the squared distance that is left
_Explained = tuple[Mistake, float]


def _find_mistake_in_trace(
    piece: trace_files.TracePiece, precision: Precision, name: str
) -> _Explained | None:
    """Return a mistake that leaves little of ‖y − a‖², y the array of this name and a the correct one, or None.

    The head by itself is tried first, then all heads, which may have been permuted.
    """
    for part in (piece, piece.whole):
        sample = None if part is None else _sample_end_queries(part, precision, name)
        if sample is not None and (
            result := _of_lse(sample) if name == "lse" else explained(sample, LITTLE)
        ):
            return result
    return None


def _sample_end_queries(
    piece: trace_files.TracePiece, precision: Precision, name: str
) -> BitSample | None:
    """Return some queries at the end from which positions are counted, so that the specification applies to them.

    Weights are the output for values V = I.
    """
    n_q = piece.inputs["q"].shape[-2]
    n_k = piece.inputs["k"].shape[-2]
    top = piece.spec.alignment == "top-left"
    rows = range(min(n_q, _ROWS)) if top else range(max(0, n_q - _ROWS), n_q)
    masks = {
        n
        for n, a in piece.inputs.items()
        if n in ("mask", "bias") and a.ndim > 1 and a.shape[-2] == n_q > 1
    }
    inputs = {
        n: np.asarray(a[..., list(rows), :]) if n in {"q", *masks} else a
        for n, a in piece.inputs.items()
    }
    if name == "weights":
        inputs["v"] = np.broadcast_to(np.eye(n_k), (*inputs["k"].shape[:-1], n_k))
    # Rows taken out of the sequence have other positions; large inputs take too long.
    if sum(a.size for a in inputs.values()) > _ENTRIES or piece.spec.position is not None:
        return None
    # A mistake may mask a row fully, which must not raise.
    spec = (
        replace(piece.spec, fully_masked="zeros")
        if piece.spec.fully_masked == "error"
        else piece.spec
    )
    got = np.take(piece.made[name], rows, axis=-1 if name == "lse" else -2)
    return BitSample(spec, trace_files.floats(inputs), numbers(got)[0], precision.input)


def _of_lse(sample: BitSample) -> _Explained | None:
    """Return the mistake in L that leaves least of the squared distance, if that is little.

    Where several give the same numbers, the cause names the plainest, as ``A; or B``.
    """
    subject = lse.subject(replace(sample.spec, lse=True))

    def rest(run: Compute) -> np.ndarray | None:
        """Return got − L', 0 where both are the same infinity, or None if that is undefined."""
        try:
            with np.errstate(all="ignore"):
                # The second output is L.
                exact = np.asarray(float64_outputs(partial(subject.run, run), sample.inputs)[1])
                result = np.where(exact == sample.got, 0, sample.got - exact)
        except UNFIT:
            return None
        return result if exact.shape == sample.got.shape and np.isfinite(result).all() else None

    # Without an error there is nothing to explain.
    whole = rest(subject.ways[0])
    if whole is None or not whole.any():
        return None
    every = [
        (m, r)
        for m in (*subject.mistakes, *changes(subject), *subject.others)
        if (r := rest(m.run)) is not None
    ]
    # The mistake that leaves least of the squared error.
    mistake, least = min(every, key=lambda both: float((both[1] ** 2).sum()))
    own = np.where(np.isfinite(sample.got), sample.got - least, 0)
    left = share_left(*(float((x**2).sum()) for x in (least, whole, own)))
    # Several mistakes may give the same numbers on these inputs.
    alike = plainest(tuple(m for m, r in every if np.allclose(r, least, rtol=0, atol=1e-9)))
    return (
        (replace(mistake, cause="; or ".join(m.cause for m in alike)), left)
        if left <= LITTLE
        else None
    )
