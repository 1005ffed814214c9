"""Inputs of an attention by the roles of arrays in its flow of steps, as a function takes them.

Probes are made for queries, keys, values, masks and projections, with heads and further axes in front. A function's
behaviour is tried as well: repeated calls, other layouts in memory, and leading axes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from symattn.attention.inputs import TOKENS, shape
from symattn.attention.spec import Attention
from symattn.bounds import plain_bound
from symattn.bounds.called_target import Inputs
from symattn.bounds.case_result import Case, CaseResult
from symattn.bounds.inputs import Maker, Sizes, sizes_of
from symattn.bounds.judge import traced
from symattn.document import errors
from symattn.verification import power, reduce
from symattn.verification.input_source import Array, Cases, InputSource, Random
from symattn.verification.probing import (
    behaviour,
    empty_documents,
    groups,
    hints,
    numbers,
    together,
)
from symattn.verification.probing.probes import (
    FAMILIES,
    batches,
    perturbed,
    search,
    small,
)

if TYPE_CHECKING:
    from symattn.bounds.mistake import Mistake
    from symattn.verification.engine import Session
    from symattn.verification.semantics import IdentityResult


# -- sizes of fresh inputs, on which a mistake that was found must also explain the function ---------------------------
_IN_BATCHES = 2  # held-out inputs that have several items
_DRAWS_OF_NORMED_ROWS = 8  # one to three showed two mistakes of a norm alike
_LONGEST = 140  # keys, beyond which as many queries take long
_SIZES = (
    Sizes(3, 5, 4, 2),
    Sizes(4, 4, 3, 3),
    Sizes(2, 17, 6, 3),
    Sizes(5, 8, 2, 4),
    Sizes(2, 3, 70, 2),
)
#: For mistakes with a size, or a condition on sizes: around multiples of 16, 32, 64 and at them.
_MORE = (
    Sizes(2, 128, 2, 1),
    Sizes(3, 65, 2, 1),
    Sizes(2, 64, 2, 1),
    Sizes(2, 48, 2, 1),
    Sizes(2, 32, 2, 2),
    Sizes(3, 258, 2, 1),
    Sizes(2, 3, 128, 2),
    Sizes(2, 4, 64, 2),
    Sizes(3, 2, 33, 2),
    Sizes(4, 7, 72, 2),
    Sizes(1, 6, 16, 3),
    Sizes(16, 16, 4, 4),
)
#: Sizes that no other input has: unequal and odd lengths, and several tiles of 64 and 128 with a width above 64.
_HELD_OUT = (
    Sizes(60, 61, 5, 3),
    Sizes(37, 150, 72, 5),
    Sizes(130, 300, 72, 2),
    Sizes(61, 37, 6, 4),
    Sizes(1, 151, 3, 2),
)

#: The same where exact outputs take balls, which are slow: an output is n_q × n_k products.
_HELD_OUT_BY_BALLS = (
    Sizes(20, 21, 5, 3),
    Sizes(5, 71, 68, 3),
    Sizes(17, 13, 6, 4),
    Sizes(3, 139, 3, 2),
)


@dataclass(frozen=True)
class InputsByRoles(InputSource):
    """The inputs of an attention."""

    spec: Attention
    random = "accuracy"

    @property
    def attention(self) -> Attention:
        """See ``InputSource``."""
        return self.spec

    # -- inputs --------------------------------------------------------------------------------------------------------
    def first(self) -> Mapping[str, Cases]:
        """Return the groups of cases that a diagnosis rests on."""
        return self.cases_of_probes(groups.FIRST)

    def later(self) -> Mapping[str, Cases]:
        """Return the groups of ranges, orders and sizes that test what the specification has."""
        return self.cases_of_probes(groups.LATER)

    def last(self) -> Mapping[str, Cases]:
        """Return the group of long inputs."""
        return self.cases_of_probes(groups.LAST)

    def between(self, session: Session, rng: Random) -> None:
        """Try behaviour; if no fault is known, also floats at the sizes at which residues differ.

        If inputs were refused, test residues again within the narrower domain.
        """
        session.progress("behaviour")
        for case in session.share(behaviour.GROUP, behaviour.cases(session.maker, rng)):
            behaviour.take(session, case)
        # Without a mask no number has the weight 0.
        if self.spec.masks_anything:
            behaviour.leaking(session, "all")
        if self.spec.documents:
            for case in session.share(
                empty_documents.GROUP, empty_documents.cases(session.maker, rng)
            ):
                empty_documents.take(session, case)
        if session.known == 0:
            # Residues failed at sizes that the function refuses: the narrower domain has others.
            if session.domain != session.promised and (
                session.identity is None or session.identity.agrees is None
            ):
                session.identity = hints.residues(session)
            if session.identity is not None and session.identity.difference is not None:
                for case in hints.cases(session.identity.difference.sizes, session.maker, rng):
                    session.take(case)
            # A function that takes no leading axes cannot be wrong on them.
            if session.runner.convention.front != "none" or session.domain.batch:
                _try_leading_axes(session, rng)

    def case_of_attention(
        self, session: Session, group: str, title: str, made: Mapping[str, Array], rng: Random
    ) -> Case:
        """Return a case with these inputs."""
        return Case(group, title, made)

    def attended(self, session: Session, made: Mapping[str, Array]) -> Array | None:
        """Return the function's output."""
        return session.call(Case("structure", "weights", made)).output

    def arrays_of_attention(self, inputs: Inputs) -> dict[str, Array]:
        """Return the inputs."""
        return dict(inputs)

    def maker(self, session: Session) -> Maker:
        """Return the maker of inputs of the specification, as the function takes them."""
        return Maker(self.spec, session.runner.convention, session.precision, session.domain)

    def required(self, session: Session) -> dict[str, int]:
        """Return the required cases of behaviour, and of random inputs."""
        drawn = min(power.LEAST, session.examples)
        return {behaviour.GROUP: power.LEAST, self.random: drawn}

    def drawn(self, session: Session, examples: int) -> Iterator[Case]:
        """Draw cases of any size and family."""
        for title, inputs in search(session.maker, session.seed, examples):
            yield Case(self.random, title, inputs)

    def altered(self, session: Session, inputs: Inputs, rng: Random) -> dict[str, Array]:
        """Return the inputs with one array ``perturbed``; masks stay, and scores stay within the domain."""
        maker = session.maker
        names = [n for n, a in inputs.items() if n != "mask" and a.ndim > 1]
        changed = {n: maker.in_format(a) for n, a in perturbed(inputs, names, rng).items()}
        return maker.tame({**inputs, **changed})

    def unseen(self, session: Session, mistakes: Sequence[Mistake]) -> Iterator[Case]:
        """Yield held-out inputs of several shapes, integers and normal numbers in turn."""
        # Only a wrong function needs the modules of the search.
        from symattn.verification.diagnosis.screening import SIZED

        rng = np.random.default_rng((session.seed, 1))
        wanted = (
            (*_MORE, *_SIZES) if any(m.where or SIZED.search(m.cause) for m in mistakes) else _SIZES
        )
        # Sizes that separate the edges of windows and blocks counted from either corner.
        if len(mistakes) > 1:
            reach = {n for n in (*self.spec.sides, self.spec.block) if n}
            wanted = (
                *(Sizes(n + 5, n + 8, 4, 2) for n in sorted(reach) if n + 8 <= _LONGEST),
                *wanted,
            )
        for number, sizes in enumerate(wanted):
            family = FAMILIES["integer" if number % 2 else "normal"](rng)
            inputs = session.maker.make(sizes, family, rng)
            yield Case("fresh", f"fresh inputs {number + 1}", inputs)

    def of_other_sizes(
        self, session: Session, mistakes: Sequence[Mistake], rng: Random
    ) -> Iterator[Case]:
        """Yield held-out inputs, also of lengths near the numbers in the words of the mistakes.

        The first ones have several items of a batch; entries are integers and normal numbers in turn. What a mistake in
        the maximum does depends on how low the scores of a row lie, so that one is tried on rows at many levels.
        """
        from symattn.verification.diagnosis.confirming import lengths_near_numbers

        maker = session.maker
        most = session.domain.max_tokens
        named = tuple(Sizes(n_q, n_k, 5, 2) for n_q, n_k in lengths_near_numbers(mistakes, most))
        small = maker.make(Sizes(), FAMILIES["normal"](rng), rng)
        held_out = _HELD_OUT if plain_bound.applies(self.spec, small) else _HELD_OUT_BY_BALLS
        for number, sizes in enumerate((*held_out, *named)):
            family = FAMILIES["integer" if number % 2 else "normal"](rng)
            # The first inputs have several items, where mistakes of batches show.
            several = maker.batches and number < _IN_BATCHES
            batch = (2, *(1,) * (maker.batches - 1)) if several else ()
            inputs = maker.make(replace(sizes, batch=batch), family, rng)
            yield Case("held out", f"held-out inputs {number + 1}", inputs)
        if any(mistake.step == "max" for mistake in mistakes):
            for title, low in numbers.low_rows(maker, rng):
                if low is not None:
                    yield Case("held out", f"held-out {title}", low)
        if any(mistake.step == "norm" for mistake in mistakes):
            for number in range(_DRAWS_OF_NORMED_ROWS):
                inputs = self._draw_normed_rows(session, rng)
                title = f"held-out rows of many sizes before their norms {number + 1}"
                # Larger rows may have scores beyond a promised limit.
                if maker.admits(inputs):
                    yield Case("held out", title, inputs)

    def _draw_normed_rows(self, session: Session, rng: Random) -> dict[str, Array]:
        """Draw arrays of which those that a norm takes have rows of many sizes: in what these are squared may show."""
        inputs = session.maker.make(Sizes(7, 9, 6, 5), FAMILIES["normal"](rng), rng)
        roles = {step.role for step in self.spec.pipeline(inputs) if step.norm is not None}
        # The norm of an output takes rows as large as the values.
        normed = {"v" if role == "output" else role for role in roles}
        # In the order of the inputs, as that of a set would make each run draw others.
        for name in [name for name in inputs if name in normed]:
            sizes = 2.0 ** rng.integers(-12, 13, (*inputs[name].shape[:-1], 1))
            inputs[name] = session.precision.input.rounded(inputs[name] * sizes)
        return inputs

    def sized(
        self, session: Session, sizes: Mapping[str, int], rng: Random
    ) -> Iterator[dict[str, Array] | None]:
        """Yield inputs of these sizes, n_k ≥ n_q, and queries that put all their weight on one or two keys."""
        wanted = Sizes(sizes["n_q"], max(sizes["n_k"], sizes["n_q"]), sizes["d_k"], sizes["d_v"])
        yield session.maker.make(wanted, FAMILIES["normal"](rng), rng)
        yield numbers.edges(session.maker, wanted.n_k, rng)

    def resized(
        self, session: Session, sizes: Mapping[str, int], rng: Random
    ) -> Iterator[dict[str, Array]]:
        """Yield small whole numbers, normal ones, and few keys for each query, of sizes of which some are large."""
        maker = replace(session.maker, cells=together.CELLS_TOGETHER)
        n_q, n_k, d_k, d_v = (sizes[n] for n in ("n_q", "n_k", "d_k", "d_v"))
        wanted = maker.fitted(Sizes(n_q, n_k, d_k, d_v, sizes.get("d_model", 6)))
        for entries in (small(rng), FAMILIES["normal"](rng), together.few_keys(rng)):
            yield maker.make(wanted, entries, rng)

    def fits(self, session: Session, inputs: Inputs) -> bool:
        """Return whether the specification takes the inputs and the domain promises them."""
        try:
            return session.maker.admits(inputs)
        except (errors.SymattnError, IndexError, ValueError):
            return False

    def promised(self, session: Session, inputs: Inputs) -> bool:
        """Return whether inputs are promised: all made ones, unless the domain limits scores that cannot be lowered."""
        return session.domain.max_abs_score is None or self.fits(session, inputs)

    def sizes(self, judged: CaseResult) -> dict[str, int]:
        """Return n_q, n_k, d_k, d_v; for inputs of tokens also d_model and h."""
        sizes = sizes_of(self.spec, judged.case.inputs)
        return sizes if "d_model" in sizes else {n: size for n, size in sizes.items() if n != "h"}

    def measured(self, judged: CaseResult) -> dict[str, int]:
        """Return the sizes, and the number of items of a batch."""
        axes = traced(judged).run.values["q"].plain_shape[:-2]
        sizes = {n: size for n, size in self.sizes(judged).items() if n not in ("d_model", "h")}
        return {
            **sizes,
            "batch": prod(int(n) for n in (axes[:-1] if self.spec.heads > 1 else axes)),
        }

    def axes(self, inputs: Inputs) -> reduce.Axes:
        """Return the letters of the axes; with those of batches, for q, k, v and masks of each item."""
        names = {
            n: shape(n, self.spec, inputs).replace("…", "").replace("?", "").split() for n in inputs
        }
        result = {
            n: tuple(tuple(axis.strip("()").split("*")) for axis in axes)
            for n, axes in names.items()
        }
        # Axes in front of those of the layout are batches.
        front = np.ndim(inputs["q"]) - len(result["q"]) if "q" in inputs else 0
        batch = tuple((f"batch {k}",) for k in range(front))
        alike = (
            n for n in result if front and np.shape(inputs[n])[:front] == inputs["q"].shape[:front]
        )
        result |= {
            n: (*batch, *result[n]) for n in alike if np.ndim(inputs[n]) == front + len(result[n])
        }
        heads = self.spec.counts
        return reduce.Axes(result, heads, frozenset(heads), first=("n_q", "n_k", "d_v"))

    def free(self, inputs: Inputs) -> tuple[str, ...]:
        """Tokens, queries, keys and values."""
        return tuple(n for n in TOKENS if n in inputs)

    def axes_of_outputs(self, judged: Sequence[CaseResult]) -> Mapping[str, int]:
        """See ``InputSource``: heads are an axis unless they are joined, and items come before it."""
        joined = any("x" in r.case.inputs for r in judged[:1])
        has_heads = self.spec.heads > 1 and not joined
        heads = {"heads": -3} if has_heads else {}
        # Axes in front of heads, queries and columns count items of a batch.
        most = max(
            (part.got.ndim for r in judged for part in r.parts if part.got is not None),
            default=0,
        )
        return heads | ({"items": -most} if most > 2 + has_heads else {})

    def drawn_for_power(self, session: Session) -> list[dict[str, Array]]:
        """See ``InputSource``: small and long inputs that the domain promises."""
        # Some mistakes act on distant keys alone, so that one input is long.
        rng = np.random.default_rng((session.seed, 4))
        most = min(session.domain.max_tokens, 600)
        entries = FAMILIES["normal"](rng)
        return [
            session.maker.make(sizes, entries, rng)
            for sizes in (Sizes(5, 7, 4, 3), Sizes(most, most, 4, 3))
        ]

    def notes(self, session: Session) -> Iterator[str]:
        """See ``InputSource``: on behaviour."""
        yield from behaviour.notes(session)
        if self.spec.masks_anything:
            yield from behaviour.notes_of_leaks(session)

    def reservations(self, session: Session) -> Iterator[str]:
        """Yield numbers that stand for −∞ without a try of scores below, long windows, and wrong leading axes."""
        identity = session.identity
        if identity is not None and identity.notes:
            yield from _reserve_untried_literals(session, identity)
        if self.spec.documents:
            yield from empty_documents.reservations(session)
        reach = max((n for n in self.spec.sides if n is not None), default=0)
        if reach >= session.domain.max_tokens:
            yield f"No input is longer than the window of {reach + 1} keys; --window 4 tries a short one."
        if self.spec.temperature is not None:
            yield from numbers.reserve_untried_temperatures(self.spec, session.domain.max_tokens)
        if session.in_front is not None:
            yield (
                f"Leading batch axes are accepted, but give wrong values: {session.in_front.case.name}; "
                "Domain(batch=True) makes that a fault."
            )


def _reserve_untried_literals(session: Session, identity: IdentityResult) -> Iterator[str]:
    """Yield numbers that stand for −∞ without a try of scores below."""
    level, least = (
        numbers.reachable(session.maker),
        -float(session.precision.score.largest) / 16,
    )
    # Literals above −level were tried; near the lowest number of the format they are safe.
    open_ = (x for x in hints.literals(identity) if least < x <= -level)
    untried = [f"{x:.6g}".replace("-", "−").replace("e+0", "e").replace("e+", "e") for x in open_]
    if untried:
        stands = "stands" if len(untried) == 1 else "stand"
        yield (
            f"{', '.join(untried)} {stands} for −∞: that is right if no score lies below; scores were tried "
            f"down to −{level:g}, and --max-abs-score tries others."
        )


def _try_leading_axes(session: Session, rng: Random) -> None:
    """Try leading axes if they are accepted; wrong values are a fault if the domain has batches, else a note."""
    for title, inputs in batches(session.maker, rng, in_front=True):
        if inputs is None or session.over:
            continue
        case = Case("batches", title, inputs)
        if session.domain.batch:
            session.take(case)
        else:
            judged = session.run_without_compiling(case)
            # Without a promise of batches the first wrong case is a note, no fault.
            session.in_front = session.in_front or (judged if judged.finding else None)
