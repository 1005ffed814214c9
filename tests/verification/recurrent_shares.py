"""Print which part of the law's limits programs reach: ``python -m tests.verification.recurrent_shares [tokens] [d]``.

Up to 1 a program is within a limit; wrong ones must exceed one.
"""

import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from symattn.arrays.formats import Format
from symattn.bounds.recurrent.recurrence import Recurrence
from symattn.bounds.recurrent.recurrent_arithmetic import RecurrentArithmetic
from symattn.bounds.recurrent.recurrent_limits import exact_values, limits
from tests.verification.recurrent_programs import KINDS, TYPES, Inputs, by_chunks, by_tokens, draw

Array = Any
WRONG_TOKENS = ("one gate left out", "decay after the update")
WRONG_DELTA = ("state read undecayed", "β left out", "β on the erased value alone")
WRONG_CHUNKS = ("first token of a chunk lost", "state in bfloat16", "state decays by the last gate alone")
ROWS = 256


class Share(NamedTuple):
    """The largest error in parts of the worst case, and of the sharp limit, of outputs and final state."""

    worst: float
    sharp: float


class Program(NamedTuple):
    words: str
    output: Array
    state: Array
    how: RecurrentArithmetic


def recurrence(of: Inputs, scale: float = 1.0) -> Recurrence:
    return Recurrence(of.q * scale, of.k, of.v, of.g, of.beta, of.state)


def share(of: Recurrence, program: Program, exact: Any = None) -> Share:
    exact = exact or exact_values(of)
    length = len(of.q)
    rows = np.random.default_rng(0).permutation(length)[:ROWS]
    found = limits(of, program.how, rows)
    error = np.abs(program.output.astype(float) - exact.output)[list(found.rows)]
    of_state = np.abs(program.state.astype(float) - exact.state)
    assert found.sharp is not None
    assert found.sharp_state is not None
    pairs = ((found.worst, found.worst_state), (found.sharp, found.sharp_state))
    return Share(*(float(max((error / a).max(), (of_state / b).max())) for a, b in pairs))


def right_programs(kind: str, form: str, given: Inputs, scale: float) -> Iterator[Program]:
    """Yield every right program of a kind."""
    gate, strength, most, _ = KINDS[kind]
    size = 64 if strength < 1 else 16
    wide = form == "float32"
    told: dict[str, Any] = {"stored": form, "out": form, "delta": most is not None, "scale": scale, "size": size}
    told["split"] = "middle" if gate == "feature" else "no"
    base: dict[str, Any] = {"stored": None if wide else Format(form), "output": Format(form), "size": size}
    tokens = by_tokens(given, out=form, delta=most is not None, scale=scale)
    yield Program("tokens", *tokens, RecurrentArithmetic(order="tokens", output=Format(form)))
    yield Program("chunks", *by_chunks(given, **told), RecurrentArithmetic(**base))
    yield Program("gates split", *by_chunks(given, **told | {"split": "middle"}), RecurrentArithmetic(**base))
    less = {"size": size // 2}
    yield Program("shorter chunks", *by_chunks(given, **told | less), RecurrentArithmetic(**base | less))
    if not wide:
        kept = {"kept": Format(form)}
        yield Program("state kept", *by_chunks(given, kept=form, **told), RecurrentArithmetic(**base | kept))
    for system in ("substitution", "blocks", "general") if most is not None else ():
        system_of: Any = {"substitution": "rows"}.get(system, system)
        yield Program(system, *by_chunks(given, inverse=system, **told), RecurrentArithmetic(system=system_of, **base))
    if most is not None:
        yield Program("residual", *by_chunks(given, residual=True, **told), RecurrentArithmetic(residual=True, **base))


def wrong_programs(kind: str, form: str, given: Inputs, scale: float) -> Iterator[Program]:
    """Yield wrong programs of a kind with gates."""
    gate, _, most, _ = KINDS[kind]
    delta = most is not None
    stored = None if form == "float32" else Format(form)
    by_chunk = RecurrentArithmetic(stored=stored, output=Format(form))
    one_by_one = RecurrentArithmetic(order="tokens", output=Format(form))
    for wrong in (
        *(WRONG_TOKENS if gate else ()),
        *(WRONG_DELTA if delta and gate else WRONG_DELTA[1:] if delta else ()),
    ):
        yield Program(wrong, *by_tokens(given, form, wrong, delta, scale), one_by_one)
    told: dict[str, Any] = {"stored": form, "out": form, "delta": delta, "scale": scale}
    told["split"] = "middle" if gate == "feature" else "no"
    for wrong in (*(WRONG_CHUNKS if gate else WRONG_CHUNKS[:1]), *(["β missing in the system"] if delta else [])):
        yield Program(wrong, *by_chunks(given, wrong=wrong, **told), by_chunk)


def main(tokens: int = 256, d: int = 64) -> None:
    scale = d**-0.5
    for kind in KINDS:
        for form in TYPES:
            given = draw(kind, tokens, d, form)
            exact = exact_values(recurrence(given, scale))
            rights = right_programs(kind, form, given, scale)
            wrongs = wrong_programs(kind, form, given, scale) if KINDS[kind][1] < 1 else ()
            for words, programs in (("right", rights), ("WRONG", wrongs)):
                for program in programs:
                    reached = share(recurrence(given, scale), program, exact)
                    name = f"{kind}, {form}, {words}: {program.words}"
                    print(f"{name:80} worst {reached.worst:.3g}  sharp {reached.sharp:.3g}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
