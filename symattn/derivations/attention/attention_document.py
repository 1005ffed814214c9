"""``attention``: every step of a specification, with its formula, its entries and their properties."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.special import FORBIDDEN, Undefined
from symattn.arrays.symbolic import Symbolic
from symattn.attention.codec.field_values import as_options
from symattn.attention.document import sized, times, whole_formula
from symattn.attention.flow import Step as Part
from symattn.attention.inputs import lengths
from symattn.attention.letters_of_attention import ARRAYS, N_K, SIZES, SYMBOLS
from symattn.attention.spec import Attention
from symattn.derivations.attention import FLAGS, expressions, reading
from symattn.derivations.attention import SIZES as SIZE_NAMES
from symattn.derivations.attention.entry_formulas import entry_formulas, indexed
from symattn.derivations.attention.inputs import DerivationRequest, read_request, stem
from symattn.derivations.attention.words import SEES
from symattn.derivations.steps import checked, defined, hold, searched, together, words
from symattn.document import model
from symattn.document import notation as nt
from symattn.document.codec import command as command_of
from symattn.document.errors import Refused, Undecided
from symattn.document.evidence import Evidence, weakest
from symattn.document.model import (
    Block,
    Caveat,
    Document,
    Heading,
    Note,
    Paragraph,
    Result,
    Step,
    Steps,
    Table,
    Text,
)
from symattn.document.notation import Name, Node, Words, equals, node
from symattn.document.sympify import from_sympy
from symattn.document.text import plain_text, text
from symattn.proof import typeset_words
from symattn.proof.relations import judging
from symattn.proof.relations.comparing import FalseStep
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.part_values import Unread
from symattn.proof.relations.reader import Reader
from symattn.proof.relations.section import Section

_BESIDE = 80  # the most characters of a reason at the side of a formula
# for which formulas suffice: sums, and repeated heads
_SAID = ("q", "k", "v", "k_shared", "v_shared")


def derivation(command: str = "", **parameters: object) -> Document:
    """Return the steps of attention on letters: shapes, formulas, entries, and checks of each.

    ``command`` makes the document, if its parameters come from elsewhere, such as a model's file.
    """
    request = read_request(**parameters)
    page_options = {
        name: parameters[name] for name in (*SIZE_NAMES, "size", *FLAGS) if parameters.get(name)
    }
    # Defaults are left out of the command.
    canonical = {} if command else {**page_options, **as_options(request.spec)}
    return Document(
        "derivation",
        "attention",
        ("Attention, step by step",),
        _make_attention_blocks(request),
        subtitle=typeset_words.listed(
            equals(*letters, size) for letters, size in _list_size_letters(request, every=False)
        ),
        command=command or command_of("derive", "attention", options=canonical),
        parameters=canonical,
        hints=(
            "symattn derive scaling       why the scores are divided by √d_k",
            "symattn walk eight-step      with numbers",
        ),
    )


@dataclass
class _Page:
    """A request, and the arrays that are left out of its document."""

    request: DerivationRequest
    where: Evidence
    runs: tuple[reading.ReadingRun, ...]
    cut: list[str] = field(default_factory=list)

    @property
    def tried(self) -> str:
        """The draws on which printed formulas are compared in balls, in words."""
        return f"{len(self.runs)} draws in balls"


def _make_attention_blocks(request: DerivationRequest) -> tuple[Block, ...]:
    inputs = request.inputs()
    outcome = _Page(
        request, checked(f"all entries at {_sizes_in_words(request)}"), reading.runs(request)
    )
    result: dict[str, Any] = dict(inputs)
    blocks: list[Block] = [
        Heading(("What goes in",)),
        _make_table_of_inputs(request),
        *_describe_example_inputs(request),
    ]
    for part in request.spec.pipeline(inputs):
        operands = {name: result[name] for name in part.of}
        try:
            array = expressions.run(part, operands)
            blocks += _make_section_of_step(outcome, part, operands, array)
        except Undecided:
            # Letters replace entries that depend on which score is larger.
            array = Symbolic.letters(
                stem(part.name), *lengths(part.name, request.spec, request.names, request.sizes)
            )
            blocks += _in_numbers(outcome, part, array)
        result[part.name] = expressions.letters_like(part.name, array)
    if outcome.cut:
        symbols = typeset_words.listed(SYMBOLS[name] for name in outcome.cut)
        words = (
            "The entries of ",
            *symbols,
            " are checked, and too many or too long to be written out.",
        )
        blocks.append(Note(words))
    steps = [
        step.evidence
        for block in blocks
        if isinstance(block, Steps)
        for step in block.items
        if step.evidence
    ]
    return (*blocks, *_make_formula_of_output(request, steps), _CAVEAT)


def _in_numbers(writing: _Page, part: Part, array: Array) -> list[Block]:
    """Return a section for a step that compares: letters have no order, so it is checked on numbers."""
    # One example decides nothing for all numbers.
    formula, where = (
        equals(part.symbol, part.formula),
        searched(f"one example of exact numbers, {writing.tried}"),
    )
    reason: Text = ("which is larger decides, and letters have no order",)
    above, aside = _split_long_reason(part)
    read = reading.Read(part, writing.runs)
    _check_formulas_agree(part, partial(expressions.agrees_on_numbers, writing.request, part))
    first = defined(formula, aside)
    steps = [first, Step(formula, reason, read.check(formula, where))]
    return [
        Heading((ARRAYS[part.name].title, ", ", " × ".join(map(str, array.shape)))),
        *above,
        together(steps),
    ]


def _make_section_of_step(
    writing: _Page, part: Part, values: Mapping[str, object], array: Array
) -> list[Block]:
    """Return a section: the formula of matrices, its entries and their properties."""
    above, aside = _split_long_reason(part)
    where = writing.where
    _check_formulas_agree(part, partial(expressions.agrees, writing.request, part, values, array))
    steps = _make_formula_steps(writing, part, aside)
    if part.name == "weights":
        steps += _of_weights(writing, part, array, where)
    elif part.name not in _SAID:
        shown = written_out(writing.request, array)
        if isinstance(shown, str):
            writing.cut.append(part.name)
        else:
            equation = equals(part.symbol, shown[0])
            steps.append(Step(equation, (shown[1],), where))
    # A step whose entries are not written still needs its formula.
    if not any(step.evidence for step in steps):
        steps.append(
            Step(
                equals(part.symbol, part.formula),
                ("its entries are too long to be written",),
                where,
            )
        )
    shape = " × ".join(map(str, array.shape))
    title = (ARRAYS[part.name].title, ", ", shape)
    return [Heading(title), *above, together(steps)]


def _make_formula_steps(writing: _Page, part: Part, aside: Text | str) -> list[Step]:
    """Return the formulas of matrices and entries; raise FalseStep for one that is not what the step computes.

    A formula that cannot be read, or that defines a letter of its own, has no grade.
    """
    matrix, where = equals(part.symbol, part.formula), writing.where
    formulas = [(matrix, aside), *entry_formulas(writing.request, part)]
    pairs = [(matrix, part.reason), *formulas[1:]]
    readings = reading.every(part, writing.runs, pairs)
    # Relations in the reason are formulas, too, unless they define a letter.
    for relation in judging.relations(part.reason):
        read = reading.Read(part, writing.runs)
        if (
            isinstance(relation.first, Name)
            and not reading.defines(part, relation)
            and read.reads(relation)
        ):
            read.check(relation, where)
    steps: list[Step] = []
    before: Node | None = None
    following = [*(formula for formula, _ in formulas[1:]), None]
    for read, (formula, reason), later in zip(readings, formulas, following, strict=True):
        after = later if later is not None and reading.for_others(later) else None
        # The formula of matrices is graded with its entries.
        graded = formula is not matrix and not reading.defines(part, formula)
        evidence = (
            read.check(formula, where, before, after) if read.reads(formula, before) else None
        )
        steps.append(Step(formula, words(reason), evidence if graded else None))
        before = formula
    return steps


def _split_long_reason(part: Part) -> tuple[list[Block], Text | str]:
    """Return the block of a long reason, for above the section, and the reason at the side of the formula."""
    if len(plain_text(part.reason)) > _BESIDE:
        return [Paragraph(part.reason)], "definition"
    return [], part.reason or "definition"


def _check_formulas_agree(part: Part, agrees: Callable[[], bool]) -> None:
    """Raise FalseStep unless the formulas of a step give every entry that it computes."""
    # The last step is called output: its own name says which record to mend.
    name = part.row or part.name
    try:
        agreed = agrees()
    except (Unread, Refused) as reason:
        raise FalseStep(f"{name}: {reason}") from reason
    if not agreed:
        raise FalseStep(f"{name}: its formulas give other entries than the step")


def _of_weights(writing: _Page, part: Part, array: Array, where: Evidence) -> list[Step]:
    request, symbol = writing.request, SYMBOLS["weights"]
    allowed = request.allowed()
    steps = []
    if (
        request.spec.masks_anything
        and allowed.ndim == 2
        and request.spec.normaliser in ("softmax", "sigmoid")
    ):
        formula = equals(symbol, pattern(array, allowed))
        steps.append(
            hold(expressions.zeros(array, allowed), formula, "forbidden keys have weight 0", where)
        )
    if not request.spec.plain_softmax:
        return steps
    # A sum of softmax weights that is not 1 would be a mistake of this page.
    if not expressions.row_sums(array, allowed):
        raise FalseStep("the weights of a row do not sum to 1")
    # A row without keys has no weights that sum to 1.
    if not request.every_row_has_a_key():
        return [*steps, *_row_sums(reading.Read(part, writing.runs), where)]
    ones = Name("1", bold=True)
    formula = equals(symbol * ones, ones)
    if _depends_on_example(request):
        return [
            *steps,
            Step(
                formula,
                ("every row sums to one",),
                reading.Read(part, writing.runs[: reading.DRAWS]).check(formula, where),
            ),
        ]
    # Under a causal mask the proof is for as many queries as keys.
    as_many = request.spec.causal
    reason: Text = (
        "every row sums to one",
        *((", where ", equals(SIZES["n_q"], SIZES["n_k"])) if as_many else ()),
    )
    return [*steps, _weights_section(request).claim(formula, reason)]


def _row_sums(read: reading.Read, where: Evidence) -> list[Step]:
    """Return the sums of rows with a key, and of those without."""
    row = nt.total("j", 1, N_K, nt.name("a", "i", "j", role="weight"))
    sums = ((1, SEES), (0, "all others"))
    one, none = (nt.Row((equals(row, x), nt.Words("for"), nt.Words(when))) for x, when in sums)
    return [
        Step(one, (), read.check(one, where, None, none)),
        Step(none, (), read.check(none, where, one)),
    ]


def _depends_on_example(request: DerivationRequest) -> bool:
    """Return whether the masks depend on an example, or on the numbers of queries and keys."""
    spec = request.spec
    others = (
        spec.mask
        or spec.padding
        or spec.documents
        or spec.block
        or spec.prefix
        or spec.window is not None
    )
    # Alignment depends on both numbers.
    unequal_lengths = spec.causal and request.n_q != request.n_k
    return bool(others or spec.base) or unequal_lengths


def _weights_section(request: DerivationRequest) -> Section:
    """Return a section with weights for any numbers of queries and keys (equal ones under a causal mask).

    Softmax does not depend on how scores are computed, so plain ones stand for all.
    """
    causal = request.spec.causal
    spec = Attention(causal=causal, alignment=request.spec.alignment, fully_masked="nan")

    def weights(reader: Reader) -> Any:
        q, k = reader.arrays["Q"], reader.arrays["K"]
        # Keys stand for values, which the weights do not depend on.
        return spec.trace(q, k, k)["weights"]

    shapes = {"Q": "n d_k", "K": "n d_k"} if causal else {"Q": "n_q d_k", "K": "n_k d_k"}
    sizes = {"n_q": "n", "n_k": "n"} if causal else {"n_q": "n_q", "n_k": "n_k"}
    return Section(Glossary(shapes, sizes, defined={"A": weights}))


def _make_formula_of_output(
    request: DerivationRequest, steps: Iterable[Evidence]
) -> tuple[Block, ...]:
    """Return the formula of the output, which follows from those of the steps: its grade is that of the weakest."""
    formula = equals(SYMBOLS["output"], whole_formula(request.spec, request.names))
    grade = weakest([checked(""), *steps])
    where = Evidence(grade, f"every step above, at {_sizes_in_words(request)}")

    def decide(other: Node) -> Evidence:
        # The last formula is that of the steps put together, and nothing else.
        if other != formula:
            raise FalseStep(
                f"{text(other)} is not the formulas of the steps, one in the place of the other's letter"
            )
        return where

    judging.record(judging.DecidedRelation(formula, decide))
    return Heading(("In one formula",)), Result("Result", (formula,), (where,))


def _make_table_of_inputs(request: DerivationRequest) -> Table:
    rows = []
    for name, shape in request.shapes().items():
        sizes = times(sized(name, request.spec, request.names))  # h d_k counts as one size
        lengths_shown = " × ".join(map(str, shape)) or "()"
        row = ((model.Code(name),), (SYMBOLS[name],), (lengths_shown,), sizes)
        rows.append(row)
    return Table(model.headers("name", "symbol", "shape", "sizes"), tuple(rows))


def _describe_example_inputs(request: DerivationRequest) -> tuple[Block, ...]:
    result = {
        "mask": "the mask lets every query see each second key",
        "keep": "the last key is padding",
        "doc": "the last third of the tokens is another document",
        "doc_q": "",
        "doc_k": "the last third of queries and of keys is another document",
        "drop": "one weight in five is dropped",
        "positions": "positions are in order",
        "positions_q": "",
    }
    parts = [result[name] for name in request.names if result.get(name)]
    return (Note(("An example: " + ", and ".join(parts) + ".",)),) if parts else ()


_CAVEAT = Caveat(
    (
        "Every step is shown on letters of its own, at the sizes named: ",
        SYMBOLS["weights"],
        " is any matrix of weights where ",
        SYMBOLS["output"],
        " is computed from it.",
    )
)


def _list_size_letters(
    request: DerivationRequest, every: bool = True
) -> list[tuple[tuple[Node, ...], int]]:
    """Return letters with their lengths; n_q and n_k together if they are equal."""
    spec, sizes = request.spec, request.sizes
    result = {"n_q": request.n_q, "n_k": request.n_k}
    result |= {"d_model": sizes["d_model"]} if request.projected else {}
    result |= {"d_k": sizes["d_k"], "d_v": sizes["d_v"]}
    result |= {"h": spec.heads} if spec.heads > 1 else {}
    result |= {"g": spec.key_heads} if spec.key_heads < spec.heads else {}
    if every:
        result |= {
            n: sizes[n]
            for n in request.letters()
            if n in sizes and n not in ("d_y", "d_out", *result)
        }
    pairs: list[tuple[tuple[Node, ...], int]] = [
        ((SIZES[letter],), n) for letter, n in result.items()
    ]
    # n_q = n_k is written as one chain.
    return (
        pairs
        if request.n_q != request.n_k
        else [((SIZES["n_q"], SIZES["n_k"]), request.n_q), *pairs[2:]]
    )


def _sizes_in_words(request: DerivationRequest) -> str:
    return ", ".join(
        " = ".join([*map(_spell_size_letter, letters), str(size)])
        for letters, size in _list_size_letters(request)
    )


def _spell_size_letter(letter: Node) -> str:
    """Return a letter as typed, such as d_model, with Latin letters for ℓ and δ if it has an index."""
    if not isinstance(letter, Name):
        return text(letter)
    subscripts = (s.base for s in letter.sub if isinstance(s, Name))
    whole = "_".join([letter.base, *subscripts])
    return whole.replace("ℓ", "l").replace("δ", "d") if letter.sub else whole


# -- matrices of entries that fit a line: sums of letters, or a note that they were cut --------------------------------
_WIDEST = 62  # columns of the matrices that are written out
_MOST = 36  # entries of them
_ORDER: tuple[nt.Role, ...] = ("query", "key", "weight", "value")
TOO_LARGE = "cut"
"""The result for a matrix that is too large to be written out."""


def written_out(request: DerivationRequest, array: Any) -> tuple[nt.Matrix, str] | str:
    """Return the matrix of entries and the heads that it shows, or ``TOO_LARGE``."""
    front_axes = array.shape[: max(array.ndim - 2, 0)]
    sheets = [array.entries[front] for front in np.ndindex(*front_axes)]
    if array.ndim < 2:
        sheets = [array.entries[None, :]]
    # A large matrix is not read, whatever its entries are.
    if any(sheet.size > _MOST for sheet in sheets[:1]):
        return TOO_LARGE
    headed = request.spec.heads > 1 and array.ndim > 2
    sheets = sheets if headed else sheets[:1]
    shown = [
        nt.matrix([[_write_symbolic_entry(x, headed) for x in row] for row in sheet])
        for sheet in sheets
    ]
    widths = (sum(len(text(x)) + 2 for x in row) for row in shown[0].rows)
    if max(widths) > _WIDEST:
        return TOO_LARGE
    if not headed:
        return shown[0], "written out"
    # Every head has the same letters, or the first one stands for them.
    return shown[0], "in every head alike" if all(
        sheet == shown[0] for sheet in shown
    ) else "in the first head"


def _write_symbolic_entry(x: object, headed: bool) -> Node:
    """Return an entry with the letters of the formulas; the index of the head is left out."""
    if x is FORBIDDEN:
        return nt.Neg(Name("∞"))
    if isinstance(x, Undefined):
        return Words("undefined")
    return _reletter_entry(from_sympy(x, {}), headed)


def _reletter_entry(x: Node, headed: bool) -> Node:
    if isinstance(x, Name) and x.base in _STEMS:
        array = _STEMS[x.base]
        index = x.sub
        if len(index) == 1 and isinstance(index[0], nt.Number):  # 1, 2, 3 for 123
            digits_of_index = str(index[0].value)
            index = tuple(node(int(digit)) for digit in digits_of_index)
        own = headed and "[" in ARRAYS[array].shape
        return indexed(
            SYMBOLS[array], index[1:] if own else index, plain=array.startswith(("w_", "b_"))
        )
    if isinstance(x, nt.Call):  # its name is no letter
        arguments = tuple(_reletter_entry(part, headed) for part in x.arguments)
        return nt.Call(x.function, arguments)
    if isinstance(x, nt.Product):
        factors = [_reletter_entry(f, headed) for f in x.factors]
        # queries before keys, weights before values, others in front
        factors.sort(
            key=lambda f: _ORDER.index(f.role) if isinstance(f, Name) and f.role in _ORDER else -1
        )
        return nt.Product(tuple(factors), x.sign)
    return nt.mapped(x, lambda part: _reletter_entry(part, headed))


# Names of arrays by the word with which their letters begin.
_STEMS = {name.replace("_", ""): name for name in ARRAYS}


def pattern(weights: Any, allowed: np.ndarray) -> nt.Matrix:
    """Return the matrix of weights with letters where a weight is not 0."""
    sheet = weights.entries[(0,) * (weights.entries.ndim - 2)]
    indices = np.ndindex(*sheet.shape)
    cells = {
        (i, j): node(0) if sheet[i, j] == 0 else nt.name("a", i + 1, j + 1, role="weight")
        for i, j in indices
    }
    rows, columns = map(range, sheet.shape)
    return nt.matrix([[cells[i, j] for j in columns] for i in rows])
