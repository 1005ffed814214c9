"""``rungs``: call a function with more and more tokens, several times, and judge the weighted means of its outputs.

See ``sharp.means``. The calls are stacked as the items of a batch, so that a function without a batch axis can be
judged as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from symattn.attention.spec import Attention
from symattn.bounds.case_result import UNFIT, Case
from symattn.bounds.contracts import Contract, replay
from symattn.bounds.inputs import Sizes
from symattn.bounds.judgement import judge_by_filter
from symattn.bounds.reference import Variant, float64_inputs
from symattn.bounds.sharp import rows_in_float64
from symattn.bounds.sharp.limits import ALPHA, HYPOTHESIS, Floats, Stores
from symattn.bounds.sharp.sample import averaged, chosen, only
from symattn.document.errors import InputError, Refused
from symattn.verification.probing.probes import FAMILIES
from symattn.verification.report import Fault

if TYPE_CHECKING:
    from symattn.verification.arithmetic.bits_of_a_call import Trial
    from symattn.verification.arithmetic.suspects import BitSample
    from symattn.verification.engine import Session

GROUP = "means"
_RUNGS = ((256, 1), (512, 2), (1024, 4), (2048, 8))  # tokens, and calls with so many
MOST = _RUNGS[-1][0]  # tokens
# d_k is no power of 4, so that the scale is no power of 2.
_WIDTHS = (80, 64)
# Distinguishes these inputs from others that the same seed draws.
_SEED = 8


@dataclass(frozen=True, eq=False)
class Grown:
    """Some rows of several calls: their attention and inputs, the function's outputs, and what it may store.

    ``alpha`` is the false-alarm probability of elements, and likewise of means.
    """

    spec: Attention
    inputs: dict[str, np.ndarray]
    rows: Sequence[int]
    got: Floats
    how: Stores
    words: str
    alpha: float = ALPHA / (2 * (len(_RUNGS) + 1))  # 1 for the call of ``judge_jointly``

    @property
    def tokens(self) -> int:
        """The number of keys."""
        return int(self.inputs["k"].shape[-2])

    def beyond(self, out: Floats) -> str:
        """Name the part of an output beyond the limits of rounding to nearest, or ""."""
        # Elements and means share the α that is passed, and each is to have its own.
        try:
            judgement = judge_by_filter(
                self.spec, self.inputs, out, self.how, 2 * self.alpha, self.rows, out.shape[-2]
            )
        except Refused:
            return ""
        if judgement.beyond == "elements" and judgement.accused:
            return f"{judgement.accused.count} of {out.size} outputs are"
        return (
            f"weighted means of outputs ({judgement.mean.place}) are {judgement.mean.words},"
            if judgement.mean
            else ""
        )

    def shows(self, contract: Contract, variants: Sequence[Variant]) -> bool:
        """Return whether the outputs of a contract show each of the mistakes."""
        return all(
            out is not None and bool(self.beyond(out))
            for out in (self._replay_grown_call(contract, v) for v in variants)
        )

    def _replay_grown_call(self, contract: Contract, variant: Variant) -> Floats | None:
        try:
            return replay(contract, self.spec, self.inputs, variant)
        except UNFIT:
            return None

    @cached_property
    def fault(self) -> Fault | None:
        """The fault that the function's own output is beyond the limits, or None."""
        words = self.beyond(self.got)
        if not words:
            return None
        step = "scale" if "scores were scaled" in words else "weights"
        message = f"on {self.words}, {words} beyond rounding to nearest in {self.how.format.name}"
        return Fault(step, None, message, ground=_GROUND)


_GROUND = (
    f"A correct function is flagged this way with a probability of at most {ALPHA:g}, if {HYPOTHESIS}. Every output "
    "may still be within the worst-case bound, so there is no counterexample."
)


def judge_jointly(session: Session, trial: Trial) -> Fault | None:
    """Judge the outputs of a call jointly, if sums are in float32 and no known arithmetic gives their bits."""
    sample, spec = trial.sample, session.attention
    how = Stores.of(session.precision, capped=spec.capped)
    if how is None or trial.ranking.best.fits or not rows_in_float64.applies(spec, sample.inputs):
        return None
    # A second look at the same call has the same answer.
    if session.together is None or session.together.got is not sample.got:
        session.together = JointCall(sample.got, _rows_of_sample(spec, sample, how))
    return session.together.rows.fault


class JointCall(NamedTuple):
    """The outputs of a call, and the rows of these that were judged jointly."""

    got: Floats
    rows: Grown


def _rows_of_sample(spec: Attention, sample: BitSample, how: Stores) -> Grown:
    words = f"{sample.inputs['k'].shape[-2]} tokens"
    return some_rows(spec, dict(sample.inputs), sample.got, how, words)


def rungs(session: Session, how: Stores) -> Iterator[Grown]:
    """Yield calls at growing sizes, within the domain, until the function returns nothing to judge."""
    rng = np.random.default_rng((session.seed, _SEED))
    domain, done = session.domain, set()
    for tokens, calls in _RUNGS:
        n = domain.tokens.down(min(tokens, domain.max_tokens)) or domain.max_tokens
        # In a small domain several rungs have the same sizes.
        if (n, calls) in done:
            continue
        done.add((n, calls))
        grown = _call_at_token_count(session, how, n, calls, rng)
        if grown is None:
            return
        yield grown


def _call_at_token_count(
    session: Session, how: Stores, n: int, calls: int, rng: np.random.Generator
) -> Grown | None:
    # Room for all scores, so that the maker does not reduce the length.
    maker = replace(session.maker, cells=n * n * session.attention.heads)
    result, outputs = [], []
    for _ in range(calls):
        inputs = maker.make(Sizes(n, n, *_WIDTHS), FAMILIES["normal"](rng), rng)
        outcome = session.call(Case(GROUP, f"{n} tokens", inputs))
        if outcome.output is None or outcome.dtype != session.precision.input.name:
            return None
        result.append(inputs)
        outputs.append(np.asarray(outcome.output, dtype=np.float64))
        # Further inputs are not stacked, so that one call must do.
        if set(inputs) != {"q", "k", "v"}:
            break
    arrays = (
        result[0]
        if len(result) == 1
        else {name: np.stack([one[name] for one in result]) for name in "qkv"}
    )
    got = outputs[0] if len(result) == 1 else np.stack(outputs)
    try:
        if not rows_in_float64.applies(session.attention, arrays):
            return None
        return some_rows(session.attention, arrays, got, how, f"{len(result)} × {n} tokens")
    except InputError:
        return None


def some_rows(
    spec: Attention, inputs: dict[str, Any], got: Floats, how: Stores, words: str
) -> Grown:
    """Return some rows of the function's output for these inputs."""
    wide = float64_inputs(inputs)
    rows = chosen(spec, wide, averaged(prod(got.shape[:-2]), wide["k"].shape[-2]))
    less, mine = only(spec, wide, rows)
    return Grown(less, mine, rows, got[..., rows, :], how, words)
