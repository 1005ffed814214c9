"""How a function behaves apart from its values: repeated calls, other memory layouts, NaN behind a mask."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Literal

import numpy as np

from symattn.bounds import called_target
from symattn.bounds.called_target import Inputs
from symattn.bounds.case_result import Case
from symattn.bounds.inputs import Array, Maker, Sizes
from symattn.verification.probing.probes import small
from symattn.verification.report import Counterexample, Fault

if TYPE_CHECKING:
    from symattn.verification.engine import Session

GROUP = "behaviour"
# Memory layouts in which the same numbers may lie.
_LAYOUTS: tuple[tuple[str, called_target.Memory], ...] = (
    ("arrays with gaps in memory", "strided"),
    ("arrays that are transposed views", "transposed"),
    ("arrays with negative strides", "reversed"),
    ("arrays in Fortran order", "fortran"),
)
_LENGTHS = (5, 9, 7, 12)  # lengths of the cache, for the same number of new tokens
# New tokens of each call.
_NEW = 2
# Arrays with a row for each token.
_ROWS_OF_NUMBERS = ("q", "k", "v", "x", "y")


def cases(maker: Maker, rng: np.random.Generator) -> Iterator[Case]:
    """Yield the same inputs twice with others between them, other lengths and widths, views, equal arrays.

    Stale state of an earlier call shows if only one size has changed since: the number of keys for the same number of
    queries, or the width for the same number of keys.
    """
    # A generator of its own: what later groups draw stays the same.
    own = deepcopy(rng)
    first, other = (maker.make(Sizes(3, 5, 4, 2), small(rng), rng) for _ in range(2))
    yield Case(GROUP, "a first call", first)
    yield Case(GROUP, "a second call, other numbers in the same shapes", other, alone=False)
    yield Case(GROUP, "the first call again", first, alone=False)
    for n_k in _LENGTHS:
        n_q = n_k if maker.square else _NEW
        inputs = maker.make(Sizes(n_q, n_k, 4, 2), small(rng), rng)
        yield Case(GROUP, f"{n_q} new tokens, {n_k} keys", inputs, alone=False)
    for d_k, d_v in ((6, 2), (6, 5), (4, 5)):
        inputs = maker.make(Sizes(3, 5, d_k, d_v), small(rng), rng)
        yield Case(GROUP, f"as many tokens, widths {d_k} and {d_v}", inputs, alone=False)
    yield Case(GROUP, "the first call once more", first, alone=False)
    for name, memory in _LAYOUTS:
        yield Case(GROUP, name, first, memory)
    # one array as keys and values, and as queries too: in-place changes of one change the others
    pairs = ((3, ("k", "v"), "keys and values"), (5, ("q", "k", "v"), "queries, keys and values"))
    for n_q, names, words in pairs if not maker.tokens else ():
        inputs = maker.make(Sizes(n_q, 5, 4, 4), small(rng), rng)
        # One array serves several roles only if they have one shape.
        if len({inputs[n].shape for n in names}) == 1:
            same = inputs | dict.fromkeys(names, inputs["k"])
            yield Case(GROUP, f"one array as {words}", maker.tame(same), "shared")
    larger = maker.make(Sizes(7, 9, 6, 5), small(own), own)
    places = draw_inner_places(larger, _ROWS_OF_NUMBERS, own)
    if places:
        changed = maker.tame(exchange_neighbours(larger, places))
        # Exchanged back, so that queries which were halved for one call are halved for both.
        yield from cases_of_exchange(GROUP, exchange_neighbours(changed, places), changed)


def draw_inner_places(
    inputs: Inputs, names: Iterable[str], rng: np.random.Generator
) -> dict[str, tuple[int, int]]:
    """Return row and column of two different neighbours inside each array; none for arrays without any.

    Inside is all but the first and last rows and columns.
    """
    result: dict[str, tuple[int, int]] = {}
    for name in names:
        inside = (
            inputs[name][..., 1:-1, 1:-1] if np.ndim(inputs.get(name, 0)) > 1 else np.zeros((0, 0))
        )
        differ = inside[..., :-1] != inside[..., 1:]
        places = np.argwhere(differ.any(axis=tuple(range(differ.ndim - 2))))
        if len(places):
            row, column = places[rng.integers(len(places))] + 1
            result[name] = int(row), int(column)
    return result


def exchange_neighbours(inputs: Inputs, places: Mapping[str, tuple[int, int]]) -> dict[str, Array]:
    """Return the inputs with the numbers at these rows and columns exchanged with the next ones of their rows.

    Sums and norms of rows stay as they are.
    """
    result = dict(inputs)
    for name, (row, column) in places.items():
        result[name] = inputs[name].copy()
        result[name][..., row, [column, column + 1]] = inputs[name][..., row, [column + 1, column]]
    return result


def cases_of_exchange(
    group: str, inputs: dict[str, Array], exchanged: dict[str, Array]
) -> Iterator[Case]:
    """Yield both calls: results that are kept by a part of the inputs show if all other parts have changed."""
    yield Case(group, "a call of more numbers", inputs)
    words = "the same inputs, two numbers exchanged inside an array"
    yield Case(group, words, exchanged, alone=False)


def take(session: Session, case: Case) -> None:
    """Try a case; if arrays with negative strides are refused, as PyTorch refuses them, that is only a note."""
    if case.memory != "reversed" or session.over or session.domain.contiguous:
        session.take(case)
        return
    # The call is recorded only if it does not fail, since such a failure is no fault.
    judged = session.run_case(case)
    if judged.finding == "raises":
        session.backwards = f"It fails on arrays with negative strides: {judged.outcome.error}."
    else:
        session.keep(judged)


def notes(session: Session) -> Iterator[str]:
    """Yield notes on behaviour that is no fault, but that users should know."""
    mine = {r.case.name: r for r in session.records if r.case.group == GROUP}
    once = mine.get("a first call")
    again = mine.get("the first call again")
    if (
        once
        and again
        and not once.finding
        and not again.finding
        # NumPy's bits differ from those of compiled programs of JAX.
        and once.outcome.interpreted == again.outcome.interpreted
        and not called_target.same_bits(once.outcome, again.outcome, len(once.parts))
    ):
        yield "Repeated calls with the same inputs gave different bits, within what is allowed."
    if session.backwards:
        yield session.backwards
    viewed = sorted({name for r in session.records for name in r.outcome.views})
    if viewed:
        yield f"The output may share memory with the input {', '.join(viewed)}."
    # Read-only arrays are tried last, since a failure on them is only noted.
    if once and not once.finding and not session.over:
        frozen = session.runner.run(once.case.inputs, "frozen")
        if frozen.error is not None and not frozen.late:
            yield f"It fails on arrays that are read-only: {frozen.error}."


def notes_of_leaks(session: Session) -> Iterator[str]:
    """Yield a note if NaN of the weight 0 reaches an output, though the domain does not forbid that."""
    # A definition without attention has no masked weights, hence "all" alone.
    if session.subject.attention is None:
        if leaking(session, "all") and not session.domain.nonfinite_forbidden:
            yield f"{session.subject.leak}; --nonfinite-forbidden makes that a fault."
        return
    if leaking(session, "some") or (
        leaking(session, "all") and not session.domain.nonfinite_forbidden
    ):
        yield "Outside the domain: NaN in a value that a query may not attend to reaches its output."


def faults_of_leaks(session: Session) -> Iterator[Fault]:
    """Yield a fault if NaN of the weight 0 reaches an output, where the domain forbids that."""
    subject = session.subject
    leak = leaking(session, "all")
    if leak is not None:
        step = subject.step if subject.attention is None else "mask"
        shown = Counterexample({n: a.tolist() for n, a in leak.items()})
        yield Fault(step, subject.leak, subject.leak, shown)


def leaking(session: Session, hidden_from: Literal["some", "all"]) -> dict[str, Array] | None:
    """Return inputs whose NaN behind the mask reaches a query that may not see it, or None.

    The NaN is in a value that some queries but not all may attend to, or in a key or value that none may, or in other
    numbers that have the weight 0, which is "all". The search runs once per session.
    """
    if session.leaks or session.over:
        return session.leaks.get(hidden_from)
    session.leaks["all"] = _find_weightless_inputs_leaking_nan(session)
    spec = session.subject.attention
    if spec is None or not session.subject.returns_attended:
        return session.leaks.get(hidden_from)
    if spec.masks_anything and not session.maker.tokens:
        rng = np.random.default_rng(session.seed)
        tried = [
            session.maker.make(sizes, small(rng), rng)
            for sizes in (Sizes(3, 5, 4, 2), Sizes(4, 20, 4, 2))
        ]
        hiding = []  # with a mask that hides the last key from all queries
        for inputs in tried:
            # Copies, since the same inputs are also tried with their own masks.
            result = {n: inputs[n].copy() for n in ("mask", "keep") if n in inputs}
            for mask in result.values():
                mask[..., -1] = False if mask.dtype == bool else -np.inf
            if result and session.maker.admits(inputs | result):
                hiding.append(inputs | result)
        session.leaks["some"] = next(
            filter(None, (_find_inputs_leaking_nan(session, i, "some") for i in tried)), None
        )
        session.leaks["all"] = session.leaks["all"] or next(
            filter(None, (_find_inputs_leaking_nan(session, i, "all") for i in (*tried, *hiding))),
            None,
        )
    return session.leaks.get(hidden_from)


def _find_inputs_leaking_nan(
    session: Session, inputs: dict[str, Array], hidden_from: str
) -> dict[str, Array] | None:
    """Return the inputs with NaN in a hidden key or value if the output of a query that it is hidden from shows it."""
    rng = np.random.default_rng((session.seed, 23))
    case = session.subject.source.case_of_attention(session, GROUP, "", inputs, rng)
    right = None if case is None else session.run_case(case)
    scores = None if right is None or right.finding else session.subject.final_scores(right)
    if scores is None:
        return None
    allowed = np.isfinite(scores)
    open_ = np.asarray(allowed.reshape(-1, *allowed.shape[-2:]).any(axis=0))  # in some head
    unseen = ~open_.any(axis=0)
    keys, names = (
        (unseen, ("v", "k")) if hidden_from == "all" else (~unseen & ~open_.all(axis=0), ("v",))
    )
    # Each key takes a call or two, so that a few must do.
    for key in np.flatnonzero(keys)[:6]:
        for name in names:
            poisoned = inputs[name].copy()
            poisoned[..., key, :] = np.nan
            output = session.subject.source.attended(session, {**inputs, name: poisoned})
            if output is not None and not np.isfinite(output[..., ~open_[:, key], :]).all():
                return {**inputs, name: poisoned}
    return None


def _find_weightless_inputs_leaking_nan(session: Session) -> dict[str, Array] | None:
    """Return inputs with NaN in numbers of the weight 0 if an output shows it that is finite with zeros there."""
    rng = np.random.default_rng((session.seed, 24))
    for zeros, undefined in session.subject.source.weightless(session, rng):
        right, outputs = (_call_for_outputs(session, inputs) for inputs in (zeros, undefined))
        # What is wrong with zeros is judged by itself.
        for name, finite, got in zip(session.subject.outputs, right, outputs, strict=False):
            # An input that is returned, such as a cache, has the NaN that it came with.
            if name in undefined:
                continue
            if got.shape == finite.shape and (np.isfinite(finite) & ~np.isfinite(got)).any():
                return undefined
    return None


def _call_for_outputs(session: Session, inputs: dict[str, Array]) -> list[Array]:
    """Return the outputs of a call as floats; none if it fails, or returns what is no array."""
    outcome = session.call(Case(GROUP, "", inputs))
    arrays = [outcome.output, *outcome.others]
    known = [np.asarray(a, float) for a in arrays if a is not None]
    return known if len(known) == len(arrays) else []
