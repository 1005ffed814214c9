"""``Attention`` as a subject: probes made for its steps, residues, behaviour, and its mistakes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf, prod
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from symattn.arrays.formats import HALF
from symattn.arrays.precision import Precision
from symattn.attention.inputs import TOKENS, shape
from symattn.attention.spec import Attention
from symattn.bounds.called_target import Inputs
from symattn.bounds.case_result import Case, CaseResult
from symattn.bounds.inputs import Sizes, sizes_of
from symattn.bounds.judge import Legal, of_attention, traced
from symattn.document import codec, errors
from symattn.verification import power, reduce
from symattn.verification.diagnosis.observe import ObservedScale, scales
from symattn.verification.probing import behaviour, hints, numbers
from symattn.verification.probing.probes import GROUPS, Group, batches
from symattn.verification.probing.search import FAMILIES, altered, search
from symattn.verification.report import Counterexample, Fault, StepPower
from symattn.verification.subject import Array, Cases, Random, Subject

if TYPE_CHECKING:
    from symattn.verification.diagnosis.causes import Cause, Search
    from symattn.verification.engine import Session


def is_plain(spec: object) -> TypeGuard[Attention]:
    """Return whether a specification is an ``Attention`` of which the output alone is verified."""
    return isinstance(spec, Attention) and not spec.lse


@dataclass(frozen=True)
class OfAttention(Subject):
    """The attention of a specification."""

    spec: Attention
    outputs = ("output",)
    step = "weights"
    what = "the specification"
    random = "accuracy"
    misshapen = "call"
    meant = frozenset({"worked", "scale", "structure", "mask", "windows", "long"})

    # -- inputs --------------------------------------------------------------------------------------------------------
    def first(self) -> Mapping[str, Cases]:
        """The groups of cases that a diagnosis rests on."""
        return _cases(GROUPS)

    def later(self) -> Mapping[str, Cases]:
        """Ranges, orders, sizes, each where the specification has them."""
        return _cases(LATER)

    def last(self) -> Mapping[str, Cases]:
        """Long inputs."""
        return _cases(LAST)

    def between(self, session: Session, rng: Random) -> None:
        """Behaviour; and as long as no fault is known floats at the sizes at which residues differ.

        Where inputs were refused, residues are asked again within the narrower domain.
        """
        session.progress("behaviour")
        for case in session.share(behaviour.GROUP, behaviour.cases(session.maker, rng)):
            behaviour.take(session, case)
        behaviour.leaking(session, "all")
        if session.known == 0:
            if session.domain != session.promised and (session.identity is None or session.identity.agrees is None):
                session.identity = hints.understood(session)
            for case in hints.cases(session.identity, session.maker, rng):
                session.take(case)
            _look_in_front(session, rng)

    def required(self, session: Session) -> dict[str, int]:
        """Behaviour, and inputs at random."""
        return {behaviour.GROUP: power.LEAST, **super().required(session)}

    def drawn(self, session: Session, examples: int) -> Iterator[Case]:
        """Draw cases of any size and family."""
        for title, inputs in search(session.maker, session.seed, examples):
            yield Case(self.random, title, inputs)

    def altered(self, session: Session, inputs: Inputs, rng: Random) -> dict[str, Array]:
        """One array scaled, or one row of it changed."""
        return altered(session.maker, dict(inputs), rng)

    def unseen(self, session: Session, mistakes: Any) -> Iterator[Case]:
        """Several shapes, integers and others in turn."""
        from symattn.verification.diagnosis.attention import held_out

        return held_out(session, mistakes)

    def sized(self, session: Session, sizes: Mapping[str, int], rng: Random) -> Iterator[dict[str, Array] | None]:
        """Yield inputs of a domain's sizes, n_k ≥ n_q, and queries that give one or two keys all their weight."""
        wanted = Sizes(sizes["n_q"], max(sizes["n_k"], sizes["n_q"]), sizes["d_k"], sizes["d_v"])
        yield session.maker.make(wanted, FAMILIES["normal"](rng), rng)
        yield numbers.edges(session.maker, wanted.n_k, rng)

    def fits(self, session: Session, inputs: Inputs) -> bool:
        """Return whether the specification takes them, and the domain promises them."""
        try:
            return session.maker.admits(inputs)
        except (errors.SymattnError, IndexError, ValueError):
            return False

    def promised(self, session: Session, inputs: Inputs) -> bool:
        """Return whether inputs are promised; made ones are, but for scores that no change of queries lowers."""
        return session.domain.max_abs_score is None or self.fits(session, inputs)

    def sizes(self, judged: CaseResult) -> dict[str, int]:
        """n_q, n_k, d_k, d_v; of tokens, d_model and h, too."""
        sizes = sizes_of(self.spec, judged.case.inputs)
        return sizes if "d_model" in sizes else {n: size for n, size in sizes.items() if n != "h"}

    def measured(self, judged: CaseResult) -> dict[str, int]:
        """The sizes, and how many items a batch has."""
        axes = traced(judged).run.values["q"].plain_shape[:-2]
        sizes = {n: size for n, size in self.sizes(judged).items() if n not in ("d_model", "h")}
        return {**sizes, "batch": prod(int(n) for n in (axes[:-1] if self.spec.heads > 1 else axes))}

    # -- outputs -------------------------------------------------------------------------------------------------------
    def legal(self, precision: Precision, inputs: Inputs) -> Legal:
        """See ``bounds.judge``."""
        return of_attention(self.spec, precision, inputs)

    def right(self, arrays: Mapping[str, Any]) -> Sequence[Any]:
        """The output of the specification."""
        return (self.spec(**arrays),)

    # -- causes --------------------------------------------------------------------------------------------------------
    def search(self, session: Session, wrong: list[CaseResult], right: list[CaseResult]) -> Search[Any]:
        """Among the mistakes of ``known`` and of ``rules``."""
        from symattn.verification.diagnosis.attention import InAttention

        return InAttention(session, wrong, right)

    def axes(self, inputs: Inputs) -> reduce.Axes:
        """Letters; of q, k, v those of batches too."""
        names = {n: shape(n, self.spec, inputs).replace("…", "").replace("?", "").split() for n in inputs}
        result = {n: tuple(tuple(axis.strip("()").split("*")) for axis in axes) for n, axes in names.items()}
        front = np.ndim(inputs["q"]) - len(result["q"]) if "q" in inputs else 0
        batch = tuple((f"batch {k}",) for k in range(front))
        result |= {n: (*batch, *result[n]) for n in ("q", "k", "v") if n in result}
        heads = self.spec.counts
        return reduce.Axes(result, heads, frozenset(heads), first=("n_q", "n_k", "d_v"))

    def coarse(self, session: Session, narrow: str) -> tuple[str, str]:
        """See ``diagnosis.coarser``."""
        from symattn.verification.diagnosis.coarser import side

        return side(session, narrow)

    def blamed(self, session: Session, smallest: CaseResult, records: Sequence[CaseResult]) -> tuple[str, str]:
        """See ``diagnosis.blaming``."""
        from symattn.verification.diagnosis.blaming import blamed

        return blamed(session, smallest, records)

    def form(self, session: Session, wrong: Sequence[CaseResult]) -> str:
        """See ``diagnosis.coarser``."""
        from symattn.verification.diagnosis.coarser import form

        return form(self.spec, session.precision, wrong)

    def free(self, inputs: Inputs) -> tuple[str, ...]:
        """Tokens, queries, keys and values."""
        return tuple(n for n in TOKENS if n in inputs)

    def explained(self, example: Counterexample, smallest: CaseResult, cause: Cause[Any]) -> Counterexample:
        """The steps to the worst row, with the one mistake that explains it, where it explains that input."""
        mistake = cause.only if cause.sure else None
        if mistake is None or mistake.around or not cause.shows(smallest):
            return example
        return replace(example, steps=reduce.steps(self.spec, smallest, mistake.variant))

    def observed(self, session: Session, step: str) -> tuple[ObservedScale, ...]:
        """The scales that were seen."""
        return scales(self.spec, session.records) if step == "scale" else ()

    def expectation(self, step: str) -> str:
        """The scale that is right."""
        if step != "scale":
            return ""
        scale = self.spec.scale
        return (
            "; expected 1/√d_k"
            if scale is None and self.spec.score == "dot"
            else "; expected none"
            if scale in (1, None)
            else f"; expected {scale}"
        )

    def remembered(self, session: Session) -> Fault | None:
        """See ``conduct.earlier_used``."""
        from symattn.verification.diagnosis.conduct import earlier_used

        return earlier_used(session)

    def misconduct(self, session: Session) -> Iterator[Fault]:
        """NaN that leaks where it must not."""
        leak = behaviour.leaking(session, "all") if session.domain.nonfinite_forbidden else None
        if leak is not None:
            cause = "NaN in a key or value that no query may attend to reaches an output"
            yield Fault("mask", cause, cause, Counterexample({n: a.tolist() for n, a in leak.items()}))

    def look_closer(self, session: Session) -> None:
        """See ``arithmetic.aims``; only half precision has bits that tell."""
        if session.precision.input.name in HALF or session.power:
            from symattn.verification.arithmetic.aims import look_closer

            look_closer(session)

    # -- the report ----------------------------------------------------------------------------------------------------
    def words(self, session: Session) -> str:
        """The promises of the domain, in words."""
        return session.domain.words

    def fields(self) -> dict[str, str]:
        """The fields that are not the usual ones."""
        return codec.changed_fields(self.spec)

    def power(self, session: Session) -> tuple[StepPower, ...]:
        """Return the power for each step that matters within the domain."""
        rng, most = np.random.default_rng((session.seed, 4)), min(session.domain.max_tokens, 600)
        entries = FAMILIES["normal"](rng)
        drawn = [session.maker.make(sizes, entries, rng) for sizes in (Sizes(5, 7, 4, 3), Sizes(most, most, 4, 3))]
        names = {name for inputs, _ in session.tried[:1] for name in inputs}
        right, mutations = power.of_attention(self.spec, names or drawn[0])
        bits = session.trial
        return power.powers(right, mutations, drawn, session.tried, lambda m: bits.smallest(m.variant) if bits else inf)

    def notes(self, session: Session, faults: bool) -> Iterator[str]:
        """Windows longer than any input, axes in front, behaviour, residues."""
        reach = max((n for n in self.spec.sides if n is not None), default=0)
        if reach >= session.domain.max_tokens:
            yield f"No input is longer than the window of {reach + 1} keys; --window 4 tries a short one."
        if session.in_front is not None:
            yield (
                f"Leading batch axes are accepted, but give wrong values: {session.in_front.case.name}; "
                "Domain(batch=True) makes that a fault."
            )
        yield from behaviour.notes(session)
        yield from hints.notes(session.identity, faults)


#: Tried as long as no fault is known.
LATER: dict[str, Group] = {
    "ranges": numbers.ranges,
    "orders": numbers.orders,
    "hidden keys": numbers.hiding,
    "masked tiles": numbers.offsets,
    "windows": numbers.windows,
    "positions": numbers.positions,
    "caps": numbers.caps,
    "given numbers": numbers.factors,
    "norms": numbers.norms,
    "widths": numbers.widths,
    "tiles": numbers.tiles,
}
#: Tried after inputs at random, since a case takes longer.
LAST: dict[str, Group] = {"long": numbers.long}


def _cases(groups: Mapping[str, Group]) -> dict[str, Cases]:
    """The groups of probes as cases."""
    return {name: partial(_of_group, name, group) for name, group in groups.items()}


def _of_group(name: str, group: Group, session: Session, rng: Random) -> Iterator[Case]:
    for title, inputs in group(session.maker, rng):
        if inputs is not None:
            yield Case(name, title, inputs)


def _look_in_front(session: Session, rng: Random) -> None:
    """Axes in front of those of the layout, where they go through: a fault if the domain has them, else a note."""
    if session.runner.convention.front == "none" and not session.domain.batch:
        return
    for title, inputs in batches(session.maker, rng, in_front=True):
        if inputs is None or session.over:
            continue
        case = Case("batches", title, inputs)
        if session.domain.batch:
            session.take(case)
        else:
            judged = session.run_case(case)
            session.in_front = session.in_front or (judged if judged.finding else None)
