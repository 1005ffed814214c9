"""Formulas printed as a recurrence or with dots: X_{l+1} = P_l X_l, and f(x₁), …, f(x_b)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from symattn.document import notation as nt
from symattn.document.errors import Refused
from symattn.document.notation import Name, Node, Relation
from symattn.document.text import text
from symattn.proof.relations.part_values import Found, Unread, Value

if TYPE_CHECKING:
    from symattn.proof.relations.reader import Reader

_DOTS, _MOST = Name("…"), 1000  # steps, or arguments


def recurrence(
    relation: Relation,
) -> tuple[str, Callable[[Reader, tuple[Node, ...]], Found]] | None:
    """Return the letter that ``X_{l+1} = …`` defines from X₀ on, and a reader of X_0, X_1, X_L and X_l, or None."""
    match relation:
        # X_{l+1} = f(X_l).
        case Relation(Name(base, (nt.Sum((Name(l, ()), nt.Number(one))),)), (("=", body),)) if (
            one == 1
        ):
            return base, lambda reader, parts: _unroll_printed_recurrence(
                reader, base, l, body, parts
            )
    return None


def _unroll_printed_recurrence(
    reader: Reader, base: str, letter: str, body: Node, parts: tuple[Node, ...]
) -> Found:
    first, *rest = parts
    result = reader.letter(text(Name(base, (nt.node(0),))))
    if not isinstance(result, Value):
        raise Unread(f"what {base} begins with")
    states = [result]
    # Under a sum over l all states are needed, else one.
    running = isinstance(first, Name) and first.base in reader.sums
    steps = reader.length(reader.sort(letter)) - 1 if running else reader.whole_number(first)
    if not isinstance(steps, int) or steps > _MOST:
        raise Refused(f"as many steps as {text(first)} says, which is not a small number here")
    definitions = reader.glossary.families.items()
    # Inside its own step the letter means the state before.
    families = {key: family for key, family in definitions if key != base}
    for step in range(steps):
        name_of_state = text(Name(base, (Name(letter),)))
        inner = reader.within({**reader.arrays, name_of_state: states[-1].array})
        inner.glossary = replace(
            reader.glossary, families=families, places={**reader.glossary.places, letter: step}
        )
        states.append(inner.one(body))
    if running:
        every = reader.xp.stack([x.array for x in states])
        # The states stand along the first axis.
        return reader.part(Value(every, (), states[0].rank + 1), parts)
    return reader.part(states[-1], tuple(rest)) if rest else states[-1]


def written_out(reader: Reader, arguments: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return the arguments f(x₁), …, f(x_b) as f(x₁), f(x₂), f(x₃) if b = 3."""
    if len(arguments) != 3 or arguments[1] != _DOTS:
        return arguments
    first, _, last = arguments
    one = nt.node(1)
    for size in reader.glossary.sizes:
        size_name = nt.name(*size.split("_"))
        # The size whose letter, put in place of 1, gives the last argument.
        if nt.replaced(first, {one: size_name}) == last and first != last:
            count = reader.whole_number(nt.name(*size.split("_"))) or 0
            if count > _MOST:
                raise Refused(f"{count} arguments")
            return tuple(nt.replaced(first, {one: nt.node(k)}) for k in range(1, count + 1))
    raise Unread(f"what stands between {text(first)} and {text(last)}")
