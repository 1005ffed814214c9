"""``shapes``: every step of a specification as rectangles, whose sides are the lengths of the axes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from os import PathLike

from symattn.attention.flow import Step
from symattn.attention.inputs import needed, shape
from symattn.attention.letters_of_attention import ARRAYS, SIZES
from symattn.attention.spec import Attention
from symattn.attention.variants import SIZES as LENGTHS
from symattn.derivations.drawing.weights import walked
from symattn.derivations.sheets.sheet import overridden
from symattn.document.drawing.scene import SMALL, Box, Label, Role, Scene, plain, small, wrapped
from symattn.document.notation import Name, Node, replaced
from symattn.document.text import text

_ROLES: dict[str, Role] = {"query": "q", "key": "k", "value": "v", "score": "score", "weight": "weight",
                           "output": "output"}  # fmt: skip
# Length of the longest side; most per entry of an axis; least that is still seen.
_LONGEST, _UNIT, _LEAST = 56.0, 8.0, 5.0
_LEFT, _RIGHT = 12.0, 474.0
# A letter with an index, or a capital letter that does not begin a word.
_LETTER = re.compile(r"(?<![a-z{_])(?:([A-Za-zωθ]′*)_(\w+)|([A-Z]′*)(?![a-z]))")


@dataclass(frozen=True)
class DrawnForm:
    """An array as a rectangle: its name, its shape in words, its sides, and whether it has heads."""

    words: str
    shape: str
    sides: tuple[float, float]
    role: Role | None
    stacked: bool

    @property
    def width(self) -> float:
        """The width of the rectangle or of the words below it, whichever is larger."""
        widths = (Label(0, 0, words, SMALL).width for words in (self.words, self.shape))
        return max(self.sides[0], *widths)


def scene(source: str | PathLike[str] | None = None, **fields: object) -> Scene:
    """Draw tokens and their projections in letters, or an example in its own numbers."""
    if source is None:
        spec = overridden(Attention(), fields) if fields else Attention()
        input_names, sizes, called = (
            _list_inputs_of_shapes(spec),
            None,
            ", ".join(fields) or "attention",
        )
    else:
        walk = walked(source, fields)
        spec = walk.sheet.attention
        input_names = tuple(walk.sheet.inputs)
        called = walk.sheet.name
        sizes = {**walk.sizes, "n_q": walk.queries, "n_k": walk.arrays["scores"].shape[-1]}
    steps = [replace(step, of=_list_arrays_step_reads(step)) for step in spec.pipeline(input_names)]
    names = dict.fromkeys(n for s in steps for n in (*s.of, s.name))
    forms = _make_forms_of_arrays(names, spec, input_names, sizes)
    drawn = Scene(
        f"Shapes of the arrays of {called}, step by step", _describe_steps_by_shapes(steps, forms)
    )
    y = 16.0
    for step in steps:
        y = _draw_row_of_step(drawn, step, forms, y)
    note = "Each line is a step: the arrays to the left of → give the one to its right. Sides are as long as axes."
    if any(form.stacked for form in forms.values()):
        note += " Stacked: one for each head."
    drawn.height = wrapped(drawn, y + 14, note) - 6
    return drawn


def _list_arrays_step_reads(step: Step) -> tuple[str, ...]:
    """Return the arrays whose numbers the step reads, without those of which it uses only a length."""
    # A step may use only the width of these arrays; it reads the numbers if its formula has the array's letter.
    result = {*"qkv", "q_rotated", "k_rotated", "q_normed", "k_normed", "k_r", "q_joined"}
    mark = Name("?")
    return tuple(
        n
        for n in step.of
        if n not in result or replaced(step.formula, {ARRAYS[n].symbol: mark}) != step.formula
    )


def _list_inputs_of_shapes(spec: Attention) -> tuple[str, ...]:
    """Return the names of tokens, projections, and other inputs of the specification."""
    if spec.packed:
        weights: tuple[str, ...] = ("w_in",)
    elif spec.latent:
        weights = () if spec.latent.queries else ("w_q",)
    else:
        weights = ("w_q", "w_k", "w_v")
    last = ("w_o",) if spec.heads > 1 or spec.latent else ()
    names = ("x", *weights, *last)
    return (*names, *(name for name in needed(spec, names) if name not in names))


def _make_forms_of_arrays(
    names: Iterable[str], spec: Attention, given: Sequence[str], sizes: Mapping[str, int] | None
) -> dict[str, DrawnForm]:
    """Return the arrays as rectangles, all at one scale."""
    heads = (
        {"h": spec.heads, "g": spec.key_heads}
        if sizes
        else {"h": 2, "g": min(spec.key_heads, 2), "p": 4}
    )
    known = {
        **LENGTHS,
        "n": 3,
        "j": spec.heads,
        "p": spec.heads + 2 * spec.key_heads,
        **heads,
        **(sizes or {}),
    }
    axes = {name: _split_axes_into_factors(name, spec, given) for name in names}
    lengths = {
        name: [prod(int(f) if f.isdecimal() else known.get(f, 4) for f in axis) for axis in result]
        for name, result in axes.items()
    }
    # Only the last two axes are drawn as sides; heads are drawn as a stack.
    longest = max(n for of in lengths.values() for n in of[-2:])
    unit = min(_UNIT, _LONGEST / longest)
    words = {
        name: list(map(str, lengths[name])) if sizes else list(map(_write_axis_factors, axes[name]))
        for name in axes
    }
    return {
        name: _make_drawn_form(ARRAYS[name].symbol, words[name], lengths[name], unit)
        for name in axes
    }


def _split_axes_into_factors(name: str, spec: Attention, names: Sequence[str]) -> list[list[str]]:
    """Return the axes of an array, each as its factors; n for n_q and n_k in self-attention."""
    whole = shape(name, spec, names).replace("…", "").replace("(h?)", "").replace("?", "")
    alone = "x" in names and "y" not in names
    return [
        ["n" if alone and f in ("n_q", "n_k") else f for f in axis.split("*")]
        for axis in whole.split()
    ]


def _make_drawn_form(
    symbol: Node, words: Sequence[str], lengths: Sequence[int], unit: float
) -> DrawnForm:
    across = lengths[-1]
    down = lengths[-2] if len(lengths) > 1 else 0
    role = _ROLES.get(symbol.role or "") if isinstance(symbol, Name) else None
    sides = max(across * unit, _LEAST), max(down * unit, _LEAST)
    return DrawnForm(
        _brace_letter_of_drawing(symbol),
        " × ".join(words),
        sides,
        role,
        len(lengths) > 2 and lengths[0] > 1,
    )


def _write_axis_factors(factors: Sequence[str]) -> str:
    """Return ``h d_k``, each letter with its index."""
    result = []
    for factor in factors:
        base, _, index = factor.partition("_")
        letter = SIZES.get(
            "g" if factor == "j" else factor, Name(base, (Name(index),) if index else ())
        )
        result.append(factor if factor.isdecimal() else _brace_letter_of_drawing(letter))
    return " ".join(result)


def _brace_letter_of_drawing(node: Node) -> str:
    """Return ``{W_Q}`` for a letter with an index, and any other formula on one line."""
    if isinstance(node, Name):
        index = "".join(text(part) for part in node.sub)
        return f"{{{node.base}_{index}}}" if index else f"{{{node.base}}}"
    return text(node)


def _draw_row_of_step(drawn: Scene, step: Step, forms: Mapping[str, DrawnForm], y: float) -> float:
    """Draw the rectangles of a step from left to right, on as many lines as needed; return the height below them."""
    x = _LEFT
    line: list[tuple[float, DrawnForm, str]] = []
    operands = ((forms[name], "") for name in step.of)
    for form, sign in (*operands, (forms[step.name], "→")):
        before = 24.0 if sign else 0.0
        # A rectangle that is wider than the sheet gets a line of its own.
        if x + before + form.width > _RIGHT and line:
            y, x = _draw_line_of_forms(drawn, line, y), _LEFT + 24
            line = []
        line.append((x, form, sign))
        x += before + form.width + 18
    words = _LETTER.sub(lambda m: "{" + (m[3] or f"{m[1]}_{m[2]}") + "}", text(step.formula))
    height = max(form.sides[1] for _, form, _ in line)
    formula = Label(_RIGHT, y + height / 2 + 5, words, SMALL, "mute", "end")
    # Without room behind the rectangles the formula is left out.
    if formula.box[0] > x:
        drawn.add(formula)
    return _draw_line_of_forms(drawn, line, y)


def _draw_line_of_forms(
    drawn: Scene, line: Sequence[tuple[float, DrawnForm, str]], y: float
) -> float:
    high = max(form.sides[1] for _, form, _ in line)
    for x, form, sign in line:
        if sign:
            drawn.label(x, y + high / 2 + 5, sign, anchor="start")
            x += 24
        width, height = form.sides
        middle = x + form.width / 2
        top = y + (high - height) / 2
        # From back to front, since later boxes cover earlier boxes.
        for far in (4.0, 2.0) if form.stacked else ():
            left = middle - width / 2 + far
            drawn.add(Box(left, top - far, width, height, "paper", "mute"))
        note = f"{plain(form.words)}: {plain(form.shape)}"
        box = (middle - width / 2, top, width, height)
        drawn.add(
            # Fills are translucent, so that the stack behind would be seen without the paper.
            Box(*box, "paper"),
            Box(*box, form.role or "tint", form.role or "mute", 0.25 if form.role else 1, note),
        )
        drawn.label(middle, y + high + 17, form.words, SMALL, form.role or "ink", "middle")
        small(drawn, middle, y + high + 34, form.shape, anchor="middle")
    return y + high + 54


def _describe_steps_by_shapes(steps: Sequence[Step], forms: Mapping[str, DrawnForm]) -> str:
    result = []
    for step in steps:
        named_operands = (f"{forms[name].words} ({forms[name].shape})" for name in step.of)
        parts = " and ".join(named_operands)
        result_form = forms[step.name]
        result.append(f"{parts} give {result_form.words} ({result_form.shape})")
    return plain(f"{len(result)} steps: {'; '.join(result)}.")
