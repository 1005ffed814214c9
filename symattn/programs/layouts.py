"""Convert arrays to and from the order of axes that a function uses, and masks, labels and tables to its forms."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from symattn.bounds.called_target import (
    AXES,
    CAUSAL_MASK,
    COUNT_K,
    COUNT_Q,
    DESTINATION,
    FACTOR,
    PAST,
    WIDTH,
    Argument,
    Convention,
    Inputs,
    Layout,
)
from symattn.document.errors import InputError
from symattn.programs.frameworks import Tensor
from symattn.programs.names import Function, meaning, without_partial
from symattn.programs.request import Request

#: Inputs with an axis of heads.
_HEADS = ("q", "k", "v")
_TOKENS = ("x", "y")  # (b, n, d_model)


def in_words(layout: Layout) -> str:
    """Return the layout as ``(b, h, n, d)``; the letter c is the h heads of width d side by side."""
    return f"({', '.join('h d' if axis == 'c' else axis for axis in layout)})"


def _axes_in_layout(name: str, layout: Layout) -> str:
    """Return the axes of an input in a layout, heads apart; tokens have no heads, and a batch in every layout."""
    letters = layout.replace("c", "hd")
    if name in _HEADS:
        return letters
    return "nbd" if letters.find("b") > 0 else "bnd"


def _permutation_from_usual_order(order: str) -> list[int]:
    """Return the permutation that takes the usual order, (b, h, n, d), to this one."""
    return [sorted(order, key="bhnd".index).index(axis) for axis in order]


def readings(layouts: Sequence[Layout], right: bool) -> Iterator[str]:
    """Yield a note on other layouts in which a wrong function is ``right``, or a right one is wrong."""
    if layouts:
        gives = "gives" if right else "runs too, and does not give"
        result = f"With the axes {' or '.join(map(in_words, layouts))} it {gives} what the specification says"
        yield f"{result}: --layout {layouts[0]} judges it so."


def orders_beside(
    axes: Mapping[Layout, str], taken: Layout, others: Sequence[Layout], joining: bool
) -> Iterator[str]:
    """Yield a note on other orders of axes in which a wrong function runs, and is wrong as well.

    In ``joining`` ones heads or items affect each other; nothing tells the rest from the order taken.
    """
    if others:
        words = " or ".join(axes[layout] for layout in others)
        differs = (
            "but heads or items then change each other's outputs"
            if joining
            else "and is wrong as well"
        )
        yield (
            f"It is judged with the axes {axes[taken]}. With {words} it runs too, {differs}: "
            f"--layout {others[0]} judges it so."
        )


def undocumented(named: Layout, taken: Layout) -> str:
    """Return a note on a function that is right with other axes than its text names."""
    return (
        f"Its text names the axes {in_words(named)}, and it is right with {in_words(taken)} alone."
    )


def judged_as_stated(named: Layout) -> str:
    """Return a note on a wrong function whose text names the axes with which it is judged."""
    return f"Its text names the axes {in_words(named)}, with which it is judged."


def to_layout(name: str, values: Tensor, layout: Layout) -> Tensor:
    """Return an input with the axes of ``layout``; missing axes b and h are added with size 1.

    ``nd`` changes nothing; weights, biases and masks (which broadcast) stay as they are in every layout.
    """
    if layout == "nd" or name not in (*_HEADS, *_TOKENS, "keep"):
        return values
    # A mask of padding has the axes (b, n_k) in every layout.
    if name == "keep":
        return values.reshape((1,) * (2 - values.ndim) + tuple(values.shape))
    order = _axes_in_layout(name, layout)
    values = values.reshape((1,) * (len(order) - values.ndim) + tuple(values.shape)).transpose(
        *_permutation_from_usual_order(order)
    )
    if name in _HEADS and layout[-1] == "c":
        *front, h, d = values.shape
        values = values.reshape((*front, h * d))
    return values


def of_layout(name: str, values: Tensor, layout: Layout) -> Tensor:
    """Return an input that has the axes of ``layout`` in the usual order, (b, h, n, d): ``to_layout`` undone.

    Raises ``InputError`` for a layout with the columns of all heads side by side, whose number is then unknown.
    """
    if layout == "nd" or name not in (*_HEADS, *_TOKENS):
        return values
    if name in _HEADS and layout[-1] == "c":
        raise InputError(f"the heads of {name} are side by side in {in_words(layout)}")
    order = _permutation_from_usual_order(_axes_in_layout(name, layout))
    # ``index`` inverts the permutation.
    return values.transpose(*map(order.index, range(len(order))))


def from_layout(output: Tensor, inputs: Inputs, layout: Layout) -> Tensor:
    """Return the output in the axes of the inputs, or with others if it does not have the axes of the layout."""
    if layout == "nd":
        return output
    source = "q" if "q" in inputs else "x"
    order = _axes_in_layout(source, layout)
    array = inputs[source]
    joined = source == "q" and layout[-1] == "c"
    if output.ndim != max(len(order), array.ndim) - joined:
        # Heads that stay apart are not side by side, though the axes are those of the inputs.
        return output[None, ...] if joined and output.ndim == array.ndim else output
    if joined:
        # Heads are counted in the inputs, since the output may have another width.
        h = array.shape[-3] if array.ndim > 2 else 1
        if output.shape[-1] % h:
            return output
        output = output.reshape((*output.shape[:-1], h, output.shape[-1] // h))
    if output.ndim == len(order):
        output = output.transpose(
            *map(_permutation_from_usual_order(order).index, range(len(order)))
        )
    # Axes that were added for the layout are removed again.
    added = max(len(order) - array.ndim, 0)
    return (
        output.reshape(output.shape[added:])
        if tuple(output.shape[:added]) == (1,) * added
        else output
    )


def causal_mask(inputs: Inputs, bottom_right: bool) -> NDArray[np.bool_]:
    """Return the mask in which query i sees key j iff j ≤ i + (n_k − n_q), or iff j ≤ i if it is aligned top-left."""
    n_q, n_k = lengths(inputs)
    return np.tri(n_q, n_k, n_k - n_q if bottom_right else 0, dtype=bool)


def lengths(inputs: Inputs) -> tuple[int, int]:
    """Return n_q and n_k."""
    rows = inputs["q"] if "q" in inputs else inputs["x"]
    columns = inputs["k"] if "k" in inputs else inputs.get("y", rows)
    return int(rows.shape[-2]), int(columns.shape[-2])


# -- layouts named in source code --------------------------------------------------------------------------------------
#: Names of axes in texts, in lower case.
_BATCH_WORDS = r"\b(?:b|bs|bsz|nb|batch|batch_size)\b"
_HEADS_WORDS = r"\b(?:h|nh|hq|heads|n_heads|nheads|num_heads|num_q_heads)(?:_(?:q|k|kv))?\b"
_TOKENS_WORDS = r"\b(?:n|s|t|l|m|seq|sq|nq|lq|tq|seqlen|seq_len|seq_length|tokens|length|q_len|time)(?:_(?:q|k|kv))?\b"
#: The gap between two axes, and an axis of any name.
_NEXT, _ANY = r"\s*[, ]\s*", r"\w+"
#: Layouts by listed axes; a list of three needs an end, since a list of four begins alike.
_PATTERNS: tuple[tuple[Layout, str], ...] = (
    ("bhnd", _NEXT.join((_BATCH_WORDS, _HEADS_WORDS, _ANY, _ANY))),
    ("bnhd", _NEXT.join((_BATCH_WORDS, _TOKENS_WORDS, _HEADS_WORDS, _ANY))),
    ("nbhd", _NEXT.join((_TOKENS_WORDS, _BATCH_WORDS, _HEADS_WORDS, _ANY))),
    ("bnd", _NEXT.join((_BATCH_WORDS, _TOKENS_WORDS, _ANY)) + r"\s*[\])=]"),
    ("nbd", _NEXT.join((_TOKENS_WORDS, _BATCH_WORDS, _ANY)) + r"\s*[\])=]"),
    ("nhd", r"[\[(]\s*" + _NEXT.join((_TOKENS_WORDS, _HEADS_WORDS, _ANY)) + r"\s*[\])]"),
)


def documented(function: Function) -> tuple[Layout, ...]:
    """Return the layouts that the text of the function names, in the order of the text."""
    text = _read_function_text(function).lower()
    result = [
        (m.start(), layout) for layout, pattern in _PATTERNS if (m := re.search(pattern, text))
    ]
    return tuple(layout for _, layout in sorted(result))


#: Three axes, heads before tokens: in brackets, or as a line of code takes them from a shape.
_HEADS_FIRST = re.compile(
    r"(?m)(?:[\[(]|^)\s*" + _NEXT.join((_HEADS_WORDS, _TOKENS_WORDS, _ANY)) + r"\s*[\])=]"
)


def puts_heads_first(function: Function) -> bool:
    """Return whether the function's text names three axes, heads before tokens, which is the usual order."""
    return bool(_HEADS_FIRST.search(_read_function_text(function).lower()))


def declared(function: Function) -> tuple[Layout, ...]:
    """Return the layouts that the function's text states of its queries, keys, values or tokens.

    They stand behind such a name in the docstring or between ``def`` and the body, or alone in a comment there.
    Comments within the body may speak of other arrays.
    """
    result: dict[Layout, None] = {}
    for line in _list_documenting_lines(function):
        for layout, pattern in _PATTERNS:
            for m in re.finditer(pattern, line.lower()):
                last = re.split(r"[, ]+", m[0].strip(" )]=[("))[-1]
                if layout[-1] == "d" and re.fullmatch(_TOKENS_WORDS, last):
                    continue  # scores or a mask, whose last axis are keys
                before = re.findall(r"[a-z_]\w*", line.lower()[: m.start()])
                means = [what for word in before if (what := meaning(word))]
                if means[-1:] in ([], ["q"], ["k"], ["v"], ["x"], ["y"]) and (
                    means or line.startswith("#")
                ):
                    result |= {layout: None}
    return tuple(result)


def _list_documenting_lines(function: Function) -> list[str]:
    """Return the lines of a function's docstring, and of its parameters with annotations and comments apart."""
    result = (inspect.getdoc(without_partial(function)) or "").splitlines()
    source = ""
    with suppress(OSError, TypeError):
        source = inspect.getsource(without_partial(function))
    for line in source.splitlines():
        code, _, comment = line.partition("#")
        result += [code] if code.strip() else []
        result += [f"# {comment.strip()}"] if comment else []
        # The line that ends with a colon is the last one before the body.
        if code.rstrip().endswith(":"):
            break
    return result


def names_form(function: Function, parameter: str, form: str, right: Iterable[str]) -> bool:
    """Return whether the function's text names a form of a mask.

    It does by the axes behind the parameter's name, ``attn_mask: (b, 1, 1, n_k)``, and by code that asks for the number
    of axes, or for an axis of queries of length 1, unless one of the ``right`` forms answers to that as well.
    """
    name = re.escape(parameter)
    text = _read_function_text(function)
    for axes in re.findall(
        rf"\b{name}\b[^()\[\]\n]{{0,40}}[(\[]([\w, ]+)[)\]]",
        "\n".join(_list_documenting_lines(function)),
    ):
        # A shape in the text need not be that of a mask.
        with suppress(InputError):
            if form_of(axes) == form:
                return True
    count = re.search(rf"\b{name}\.(?:ndim|dim\(\))\s*==\s*{len(form)}\b", text)
    single = re.search(rf"\b{name}\.(?:shape\[-2\]|size\(-2\))\s*==\s*1\b", text)
    if count and not any(len(f) == len(form) for f in right):
        return True
    return bool(single and form[-2:-1] == "1" and not any(f[-2:-1] == "1" for f in right))


#: The formula of a product of two arrays.
_EINSUM = re.compile(r"""["']([\w ]+),([\w ]+)->([\w ]+)["']""")
# by the axis of tokens
_BY_PLACE: Mapping[int, tuple[Layout, ...]] = {4: ("nbhd", "bnhd", "bhnd"), 3: ("nhd", "bnd")}


def lettered(function: Function) -> frozenset[Layout]:
    """Return the layouts of products of queries and keys by ``einsum`` in the text of the function.

    Arrays may be transposed before, so this is no more than a hint.
    """
    result: set[Layout] = set()
    for texts in _EINSUM.findall(_read_function_text(function)):
        one, other, out = (x.split() if " " in x.strip() else [*x.strip()] for x in texts)
        tokens = [x for x in one if x not in other]
        # Queries times keys: the last letter is summed, and one letter is of the queries alone.
        if len(tokens) == 1 and one[-1] == other[-1] and one[-1] not in out:
            result |= {*_BY_PLACE.get(len(one), ())[one.index(tokens[0]) :][:1]}
    return frozenset(result)


def _read_function_text(function: Function) -> str:
    function = without_partial(function)
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return inspect.getdoc(function) or ""


# -- forms of arguments ------------------------------------------------------------------------------------------------
# The form in which a function takes an argument: masks with axes for batch and heads, lengths in place of booleans.
#
# A form of a mask names its axes: b, h, q, k, and 1 for an axis of length 1. ``lengths`` (b,) and ``length`` (an
# integer) count the valid keys, which are the first ones; ``bounds`` are the offsets of packed documents
# (``cu_seqlens``), separate for queries and keys if a function takes both; ``nff`` and ``nf2`` are tables with each
# column twice, as two halves or interleaved.

#: Forms of a mask by layout, in the order in which they are tried.
_MASKS: Mapping[Layout, tuple[str, ...]] = {
    **dict.fromkeys(("nd", "nhd", "nc"), ("",)),
    **dict.fromkeys(("bnd", "nbd"), ("bqk", "b1qk", "qk", "1qk")),
    **dict.fromkeys(("bhnd", "bnhd", "nbhd", "bnc", "nbc"), ("b1qk", "bqk", "bhqk", "qk", "11qk")),
}
_PER_HEAD = ("1hqk", "hqk")  # besides bhqk
# Positions with an axis of sections: before that of batches, as in Transformers, or behind it.
_OF_SECTIONS = ("sbk", "bsk")
#: Forms of a mask of padding, with and without an axis of batches.
_KEEPS = {"b": ("bk", "b11k", "b1k", "b1qk", "bqk", "k"), "": ("", "qk")}
#: Forms of lengths, with and without an axis of batches.
_LENGTHS = {"b": ("lengths",), "": ("length", "lengths")}
#: Forms that count the valid keys.
_COUNTS = ("lengths", "length")
#: The axes of a mask, in the order of a form.
_LETTERS = "bhqk"
_OF_QUERIES = ("doc_q", "positions_q")  # their k in a form is the number of queries


def in_every_form(convention: Convention, request: Request) -> Iterator[Convention]:
    """Yield the convention with every form that its masks, labels and tables may have."""
    choices = [_forms_of(a, convention.layout, request) for a in convention.arguments]
    for chosen in product(*choices):
        pairs = zip(convention.arguments, chosen, strict=True)
        yield replace(convention, arguments=tuple(replace(a, form=form) for a, form in pairs))


def _forms_of(a: Argument, layout: Layout, request: Request) -> tuple[str, ...]:
    batch = "b" if "b" in layout else ""
    if request.mask_axes and a.input in ("mask", "keep", CAUSAL_MASK):
        return (request.mask_axes,)
    if a.input == "keep":
        return _LENGTHS[batch] if a.form in _COUNTS else _KEEPS[batch]
    if a.input in ("mask", CAUSAL_MASK):
        per_head = a.input == "mask" and request.heads > 1 and batch
        return (*_MASKS[layout], *(_PER_HEAD if per_head else ()))
    if a.input in ("bias", "drop") and request.heads > 1:
        return ("1hqk", "hqk", "bhqk", "qk") if batch else ("", "qk")
    if a.input in ("bias", "drop"):
        # Without several heads, a bias or a mask of dropout has no axis of batches.
        return tuple(f for f in _MASKS[layout] if f[:1] != "b")
    sections = getattr(request.spec.position, "sections", None)
    if a.input in ("positions", "positions_q") and sections:
        return ("", *_OF_SECTIONS) if batch else ("",)
    if a.input in ("doc", "doc_q", "doc_k", "positions", "positions_q") and not a.form:
        return ("", "bk") if batch else ("",)
    if a.input in ("cos", "sin", "cos_q", "sin_q"):
        half = getattr(request.spec.position, "layout", "half") == "half"
        return ("", "nff" if half else "nf2")
    return (a.form,)


def forms_beside(a: Argument, layout: Layout, request: Request) -> tuple[str, ...]:
    """Return the other forms in which a caller may pass a mask or a mask of dropout; () for other arguments."""
    if a.input not in ("mask", "keep", CAUSAL_MASK, "drop") or a.form in _COUNTS:
        return ()
    return tuple(form for form in _forms_of(a, layout, request) if form != a.form)


#: Names of the axes of a mask, as users spell them.
_AXIS_NAMES = {
    "b": "b batch batch_size bs bsz 2b", "h": "h heads n_heads num_heads nh", "1": "1",
    "q": "q n_q nq q_len len_q t_q s_q l_q seqlen_q seq_len_q target tgt_len",
    "k": "k n_k nk k_len len_k kv_len t_k s_k l_k seqlen_k seq_len_k source src_len m s",
}  # fmt: skip
_AXIS_OF = {name: axis for axis, names in _AXIS_NAMES.items() for name in names.split()}
#: The axes of a mask in order: each but the keys may be missing, or of length 1.
_FORM = re.compile("[b1]?[h1]?[q1]?k")


def form_of(axes: str) -> str:
    """Return the form of a mask from the names of its axes: ``b,1,n_q,n_k`` is ``b1qk``.

    Raises ``InputError`` for an unknown name, and for axes in another order than b, h, n_q, n_k.
    """
    names = [name.strip().lower() for name in axes.strip(" ()[]").split(",")]
    # Unknown names become "?", which the message then names.
    form = "".join(_AXIS_OF.get(name, "?") for name in names)
    if "?" in form:
        unknown = names[form.index("?")]
        raise InputError(
            f"--mask-axes {axes}: {unknown!r} is no axis of a mask; known: b, h, n_q, n_k and 1"
        )
    if not _FORM.fullmatch(form):
        raise InputError(
            f"--mask-axes {axes}: a mask ends in n_k, after b, h, n_q or 1; such as b,1,n_q,n_k"
        )
    return form


def in_axes(form: str) -> str:
    """Return a form of a mask as ``(b, 1, n_q, n_k)``."""
    return f"({', '.join({'q': 'n_q', 'k': 'n_k'}.get(c, c) for c in form or 'qk')})"


def argument(a: Argument, how: Convention, inputs: Inputs) -> Tensor:
    """Return the value of an argument. Raises ``InputError`` for the negation of anything but a boolean mask."""
    if a.input is None:
        return a.value
    if a.input in _NUMBERS:
        return _NUMBERS[a.input](how, inputs)
    if a.input == DESTINATION:
        # It has the rows of the queries, and the columns of the values.
        shape = (*inputs["q"].shape[:-1], inputs["v"].shape[-1])
        return to_layout("q", np.full(shape, np.nan), how.layout)
    mask = a.input == CAUSAL_MASK
    value = causal_mask(inputs, how.alignment == "bottom-right") if mask else inputs[a.input]
    if a.inverted and value.dtype != bool:
        raise InputError(f"--mask-arg ~{a.parameter}: only a boolean mask has a negation")
    value = ~value if a.inverted else value
    if a.numbers:
        value = (
            value.astype(np.int64)
            if a.numbers == "ones"
            else np.where(value, float(a.numbers == "shifted"), -np.inf)
        )
    if not a.form:
        return value if how.layout == "nd" else to_layout(a.input, value, how.layout)
    if a.form == "bounds" and a.input != "doc":
        # offsets of documents among the queries or among the keys, also of those that have none there
        return _bounds_of(inputs[a.input], numbers_of_documents(inputs["doc_q"], inputs["doc_k"]))
    if a.form in _OTHERS:
        return _OTHERS[a.form](value)
    source, axes = ("q", AXES[how.layout]) if "q" in inputs else ("x", 3)
    shape = np.shape(inputs[source])  # its axes before those of tokens: b, or b and h
    if a.form in _OF_SECTIONS:
        return _with_axis_of_sections(value, a.form, shape[0] if len(shape) == axes else 1)
    return _with_axes(value, a, (1,) * (axes - len(shape)) + shape[:-2], lengths(inputs))


def placed(
    arguments: Iterable[Argument], passed: Mapping[Argument, object]
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Return positional arguments and keywords, without inputs that were not passed."""
    places: list[Tensor] = []
    keywords: dict[str, Tensor] = {}
    for a in arguments:
        # A constant argument always has a value; an input only if it was passed.
        if a.input is None or a in passed:
            value = a.value if a.input is None else passed[a]
            if a.positional:
                places.append(value)
            else:
                keywords[a.parameter] = value
    return places, keywords


def _width_of_head(how: Convention, inputs: Inputs) -> int:
    """Return the width d_k of a head."""
    if "q" in inputs:
        return int(inputs["q"].shape[-1])
    heads = next((a.value for a in how.arguments if meaning(a.parameter) == "heads"), 1)
    columns = int(inputs["w_q" if "w_q" in inputs else "x"].shape[-1])
    return columns // heads if isinstance(heads, int) else columns


#: Arguments that are numbers, computed from the inputs.
_NUMBERS: dict[str, Callable[[Convention, Inputs], int | float]] = {
    WIDTH: _width_of_head,
    FACTOR: lambda how, inputs: float(_width_of_head(how, inputs)) ** -0.5,
    # the number of keys before the first query
    PAST: lambda how, inputs: (
        lengths(inputs)[1] - lengths(inputs)[0] if how.alignment == "bottom-right" else 0
    ),
    COUNT_Q: lambda how, inputs: lengths(inputs)[0],
    COUNT_K: lambda how, inputs: lengths(inputs)[1],
}


def _with_axes(
    value: object, a: Argument, front: tuple[int, ...], tokens: tuple[int, int]
) -> Tensor:
    """Return an array with the axes of a form: missing axes are broadcast, and axes that the form lacks are dropped."""
    n_q, n_k = tokens
    n_q = n_k if a.input == "keep" and "q" not in a.form else n_q
    whole: Tensor = value
    if a.input in ("keep", "doc", "doc_q", "doc_k", "positions", "positions_q"):
        whole = whole[..., None, :]
    of_heads = a.input in ("bias", "drop") or (a.input == "mask" and "h" in a.form)
    if (
        whole.ndim == 3 and front and not of_heads
    ):  # what has an axis of heads has no axis of batches then
        whole = whole[:, None]
    whole = whole.reshape((1,) * (4 - whole.ndim) + tuple(whole.shape))  # (b, h, q, k)
    last = n_q if a.input in _OF_QUERIES else n_k
    lasting = (front[0] if front else 1, front[1] if len(front) > 1 else 1, n_q, last)
    sizes = {
        c: n if c in a.form else m for c, n, m in zip(_LETTERS, lasting, whole.shape, strict=True)
    }
    whole = np.broadcast_to(whole, tuple(sizes.values()))
    # From the last axis on, so that the numbers of the other axes stay valid.
    for axis, letter in reversed(tuple(enumerate(_LETTERS))):
        whole = whole if letter in a.form else np.take(whole, 0, axis=axis)
    return whole.reshape(tuple(1 if c == "1" else sizes[c] for c in a.form))


def _with_axis_of_sections(value: Tensor, form: str, batch: int) -> Tensor:
    """Return positions (s, n), or (b, s, n), with an axis of batches behind or before that of sections."""
    whole = value if value.ndim == 3 else value[None]
    whole = np.broadcast_to(whole, (batch, *whole.shape[1:]))
    return np.moveaxis(whole, 0, form.index("b"))


def numbers_of_documents(*labels: Tensor) -> Tensor:
    """Return the numbers of all documents; numbers that labels skip are those of documents without tokens.

    Of many numbers skipped in a row the first and the last one count. If some are skipped, documents without tokens
    also come before the first and after the last one.
    """
    present = np.unique(np.concatenate(labels)).astype(np.int64)
    beside = np.concatenate([present[:-1] + 1, present[1:] - 1])
    documents = np.union1d(present, beside)
    if documents.size == present.size:
        return documents
    return np.concatenate([[documents[0] - 1], documents, [documents[-1] + 1]])


def _bounds_of(labels: Tensor, documents: Tensor) -> Tensor:
    """Return the offsets of documents among tokens with these labels."""
    return np.concatenate([[0], np.searchsorted(labels, documents, side="right")]).astype(np.int32)


def _count_valid_keys(keep: Tensor) -> Tensor:
    """Return the numbers of valid keys, (b,), from (b, n_k) or (b, 1, n_k)."""
    result = keep.sum(axis=-1)
    return result.reshape(-1) if result.ndim < 2 else result[:, 0]


#: Forms that are no axes: counts, offsets and tables with doubled columns.
_OTHERS: dict[str, Callable[[Tensor], Tensor]] = {
    "lengths": _count_valid_keys,
    "length": lambda keep: int(_count_valid_keys(keep)[0]),
    "bounds": lambda doc: _bounds_of(doc, numbers_of_documents(doc)),
    "nff": lambda table: np.concatenate([table, table], axis=-1),
    "nf2": lambda table: np.repeat(table, 2, axis=-1),
}
