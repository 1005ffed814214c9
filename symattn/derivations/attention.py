"""``attention``: every step of a specification, its formula, its entries, and what can be said of them."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from symattn.attention.document import whole_formula
from symattn.attention.flow import Step as Part
from symattn.attention.notation import ARRAYS, D_K, D_MODEL, D_V, N_K, N_Q, SYMBOLS, H
from symattn.attention.spec import Attention
from symattn.derivations import attention_entries as entries
from symattn.derivations.attention_formulas import entry_formulas, pattern, written_out
from symattn.derivations.attention_inputs import Request, factor, request
from symattn.derivations.letters import ONES
from symattn.derivations.proving import ALL
from symattn.derivations.steps import checked, defined, hold, listed, proved, together
from symattn.document import notation as nt
from symattn.document.model import (
    Block,
    Caveat,
    Code,
    Column,
    Document,
    Heading,
    Note,
    Result,
    Step,
    Table,
    Text,
)
from symattn.document.notation import Name, Node, equals
from symattn.evidence import Evidence, Grade
from symattn.proof.together import identity


def derivation(**parameters: Any) -> Document:
    """The steps of attention on letters: shapes, formulas, entries, and checks of each."""
    asked = request(**parameters)
    given = {name: factor(value) if name == "scale" else value for name, value in parameters.items()}
    return Document(
        "derivation",
        "attention",
        ("Attention, step by step",),
        _blocks(asked),
        subtitle=_subtitle(asked),
        command=_command(given),
        parameters={name: str(x) if isinstance(x, Fraction) else x for name, x in given.items()},
        hints=(
            "symattn derive scaling       why the scores are divided by √d_k",
            "symattn walk eight-step      with numbers",
        ),
    )


def _blocks(asked: Request) -> tuple[Block, ...]:
    inputs = asked.inputs()
    where = checked(f"all entries at {_sizes_in_words(asked)}")
    found: dict[str, Any] = dict(inputs)
    blocks: list[Block] = [Heading(("What goes in",)), _inputs(asked), *_example(asked)]
    for part in asked.spec.pipeline(inputs):
        given = {name: found[name] for name in part.of}
        array = entries.run(part, given)
        blocks += _step(asked, part, given, array, where)
        found[part.name] = entries.letters_like(part.name, array)
    return (*blocks, *_whole(asked), _caveat())


def _step(asked: Request, part: Part, given: Mapping[str, Any], array: Any, where: Evidence) -> list[Block]:
    """A section: the formula of matrices, its entries, and what is true of them."""
    steps = [defined(equals(part.symbol, part.formula), part.reason or "definition")]
    agrees = entries.agrees(asked, part, given, array)
    for formula, reason in entry_formulas(asked, part):
        steps.append(hold(agrees, formula, reason, where))
    shown = written_out(part.name, array)
    if shown is not None:
        steps.append(hold(agrees, equals(part.symbol, shown), _head(asked, array), where))
    if part.name == "weights":
        steps += _of_weights(asked, array, where)
    shape = " × ".join(map(str, array.shape))
    return [Heading((ARRAYS[part.name].title, ", ", shape)), together(steps)]


def _head(asked: Request, array: Any) -> str:
    return "in every head alike" if len(array.shape) == 3 else "written out"


def _of_weights(asked: Request, array: Any, where: Evidence) -> list[Step]:
    allowed = asked.allowed()
    symbol = SYMBOLS["weights"]
    some_row_is_empty = not allowed.any(axis=1).all()
    if some_row_is_empty:
        sums = hold(entries.row_sums(array, allowed), _row_sum(), "for a query that sees a key, and 0 else", where)
    else:
        everywhere = where if _depends_on_example(asked) else proved(ALL)
        holds = entries.row_sums(array, allowed) and (everywhere is where or _rows_sum_to_one(asked))
        sums = hold(holds, equals(symbol * ONES, ONES), "every row sums to 1", everywhere)
    steps = [sums]
    if asked.spec.masks_anything:
        formula = equals(symbol, pattern(array, allowed))
        steps.insert(0, hold(entries.zeros(array, allowed), formula, "forbidden keys have weight 0", where))
    return steps


def _depends_on_example(asked: Request) -> bool:
    """Whether the mask is that of an example, or of as many queries and keys as were asked for."""
    return bool(asked.spec.mask) or asked.spec.padding or (asked.spec.causal and asked.n_q != asked.n_k)


def _rows_sum_to_one(asked: Request) -> bool:
    """Whether the prover shows it for any number of queries and keys, as many of both under a causal mask."""
    causal = asked.spec.causal
    spec = Attention(scale=asked.spec.scale, causal=causal, alignment=asked.spec.alignment, fully_masked="nan")
    arrays = {"q": "n d_k", "k": "n d_k" if causal else "m d_k"}
    part = identity(arrays, lambda q, k: (spec.trace(q, k, k)["weights"].sum(axis=-1), 1))
    return part.decide().evidence.grade is Grade.PROVED


def _row_sum() -> Node:
    return equals(nt.total("j", 1, N_K, nt.name("a", "i", "j", role="weight")), 1)


def _whole(asked: Request) -> tuple[Block, ...]:
    formula = whole_formula(asked.spec, asked.shapes())
    where = checked(f"every step above, at {_sizes_in_words(asked)}")
    return Heading(("In one formula",)), Result("Result", (equals(SYMBOLS["output"], formula),), (where,))


def _inputs(asked: Request) -> Table:
    columns = (
        Column(("name",), "left"),
        Column(("symbol",), "left"),
        Column(("shape",), "left"),
        Column(("sizes",), "left"),
    )
    rows = [
        ((Code(name),), (SYMBOLS[name],), (" × ".join(map(str, shape)),), _sizes_of(asked, name))
        for name, shape in asked.shapes().items()
    ]
    return Table(columns, tuple(rows))


def _sizes_of(asked: Request, name: str) -> Text:
    """The shape in letters: h d_k counts as one size."""
    heads = asked.spec.heads
    wide: dict[str, Node] = {"q": D_K, "k": D_K, "v": D_V}
    many = {role: H * size if heads > 1 else size for role, size in wide.items()}
    table: dict[str, tuple[Node, ...]] = {
        "x": (N_Q, D_MODEL), "y": (N_K, D_MODEL), "mask": (N_Q, N_K), "keep": (N_K,),
        "w_o": (H * D_V, D_MODEL), "b_o": (D_MODEL,),
    }  # fmt: skip
    table |= {role: (N_Q if role == "q" else N_K, size) for role, size in wide.items()}
    table |= {f"w_{role}": (D_MODEL, size) for role, size in many.items()}
    table |= {f"b_{role}": (size,) for role, size in many.items()}
    first, *rest = table[name]
    return (first, *(part for size in rest for part in (" × ", size)))


def _example(asked: Request) -> tuple[Block, ...]:
    parts: list[str] = []
    if asked.spec.mask:
        parts.append("the mask lets every query see each second key")
    if asked.spec.padding:
        parts.append("the last key is padding")
    return (Note(("An example: " + ", and ".join(parts) + ".",)),) if parts else ()


def _caveat() -> Caveat:
    return Caveat(
        (
            "Every step is shown on letters of its own, at the sizes named: ", SYMBOLS["weights"], " is any matrix of"
            " weights where ", SYMBOLS["output"], " is computed from it.",
        )
    )  # fmt: skip


def _sizes(asked: Request) -> list[tuple[tuple[Name, ...], int]]:
    """Letters and what they are; n_q and n_k together where they are the same."""
    tokens = [((N_Q,), asked.n_q), ((N_K,), asked.n_k)] if asked.n_q != asked.n_k else [((N_Q, N_K), asked.n_q)]
    model = [((D_MODEL,), asked.d_model)] if asked.d_model else []
    heads = [((H,), asked.spec.heads)] if asked.spec.heads > 1 else []
    return [*tokens, *model, ((D_K,), asked.d_k), ((D_V,), asked.d_v), *heads]


def _sizes_in_words(asked: Request) -> str:
    return ", ".join(" = ".join([*map(_spelt, letters), str(size)]) for letters, size in _sizes(asked))


def _spelt(letter: Name) -> str:
    return "_".join([letter.base, *(s.base for s in letter.sub if isinstance(s, Name))])


def _subtitle(asked: Request) -> Text:
    return listed(equals(*letters, size) for letters, size in _sizes(asked))


def _command(parameters: Mapping[str, Any]) -> str:
    words = ["symattn derive attention"]
    for name, value in parameters.items():
        words += [f"--{name}"] if value is True else [f"--{name} {value}"] if value not in (None, False) else []
    return " ".join(words)
