"""The inputs of a specification, and checks that arrays fit each other."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache, partial
from math import prod
from typing import TYPE_CHECKING, Any

from symattn.attention.letters_of_attention import ARRAYS, WIDE, Wanted
from symattn.attention.positions import checks as position_checks
from symattn.attention.sizes import AxisLengths, check_batches, check_holds
from symattn.attention.spec_fields import descriptions
from symattn.document.errors import InputError
from symattn.document.keywords import unknown

if TYPE_CHECKING:
    from symattn.attention.spec import Attention

Form = tuple[tuple[str, type, tuple[int, ...], Any], ...]
_FORMS = 256  # the most that are cached for one specification and one set of inputs

# Inputs whose batches and widths decide the shapes of all others.
TOKENS = ("x", "y", "q", "k", "v")
# Projections, in the order of ``_BIASES``.
WEIGHTS = ("w_q", "w_k", "w_v", "w_o")
# The biases of ``WEIGHTS``.
_BIASES = ("b_q", "b_k", "b_v", "b_o")
# Inputs that belong to tokens x, and are refused beside q, k, v.
_OF_X = ("x", "y", *WEIGHTS, *_BIASES)
#: Inputs that are added to scores, and cast to their type.
SUMMANDS = ("mask", "bias")


def _is_required(condition: Wanted, spec: Attention) -> bool:
    value = getattr(spec, condition.field)
    return bool(value and condition.fits(value))


#: Inputs other than tokens and projections: required if the specification says so, else refused.
NEEDED = {
    name: partial(_is_required, named.needed) for name, named in ARRAYS.items() if named.needed
}
#: Inputs that a specification may take but does not need.
OPTIONAL = {
    name: partial(_is_required, named.optional) for name, named in ARRAYS.items() if named.optional
}
# All inputs that depend on fields, each with its condition.
_CONDITIONS = NEEDED | OPTIONAL
# The order of inputs in errors and documents.
_PLACES = {name: place for place, name in enumerate(ARRAYS)}


def by_name(qkv: tuple[object, ...], inputs: Mapping[str, object]) -> dict[str, Any]:
    """Return the inputs by name, including q, k, v by position. Raises InputError for too many, or one given twice."""
    if len(qkv) > 3:
        raise InputError(
            f"Attention takes q, k, v by position, got {len(qkv)} arrays; name the others"
        )
    for name in "qkv"[: len(qkv)]:
        if name in inputs:
            raise InputError(f"{name} is given twice, by position and by name")
    arrays = {**dict(zip("qkv", qkv, strict=False)), **inputs}
    return {name: array for name, array in arrays.items() if array is not None}


def check_inputs(spec: Attention, inputs: dict[str, Any]) -> None:
    """Raise InputError for a missing, unknown or ill-shaped input; forms that fitted once are not checked again.

    Types and shapes decide whether arrays fit each other, if every length is a plain int.
    """
    fitted, form = _cached_fitting_forms(spec, frozenset(inputs)), None
    # Letters for sizes are compared by the proof, not by a cache.
    if all(type(n) is int for array in inputs.values() for n in getattr(array, "shape", (None,))):
        form = tuple(
            (name, type(array), tuple(array.shape), _sort_of_input_dtype(array.dtype))
            for name, array in inputs.items()
        )
    if form is None or form not in fitted:
        _check_libraries(inputs)
        _check_arrays(spec, inputs)
        # A caller with ever new shapes must not fill the memory.
        if form is not None and len(fitted) < _FORMS:
            fitted.add(form)


def _check_libraries(inputs: dict[str, Any]) -> None:
    """Raise InputError for tensors of PyTorch beside arrays of NumPy: no operator takes both."""
    names_by_library = {
        type(array).__module__.partition(".")[0]: name for name, array in inputs.items()
    }
    if {"torch", "numpy"} <= names_by_library.keys():
        tensor, array = names_by_library["torch"], names_by_library["numpy"]
        raise InputError(
            f"{tensor} is a tensor of PyTorch, and {array} an array of NumPy; hint: convert one of them"
        )


@lru_cache(maxsize=256)
def _cached_fitting_forms(spec: Attention, names: frozenset[str]) -> set[Form]:
    """Return the forms known to fit this specification: a cached set that callers add to."""
    return set()


def _sort_of_input_dtype(dtype: Any) -> object:
    """Return the kind of a dtype of NumPy's own, as floats of any width fit alike, or any other dtype itself."""
    return dtype.kind if getattr(dtype, "isbuiltin", None) == 1 else dtype


def _check_arrays(spec: Attention, inputs: dict[str, Any]) -> None:
    shapes = _shapes_of_spec_inputs(spec, frozenset(inputs))
    words = {"h": "heads", "g": "heads of keys and values", "d_y": "d_model", "d_out": "d_model"}
    known = spec.counts | (position_checks.known_sizes(spec) if spec.position else {})
    sizes = AxisLengths(known, words | position_checks.WORDS)
    arrays = {name: inputs[name] for name in shapes}
    tokens = {name: arrays.pop(name) for name in TOKENS if name in arrays}
    for name, array in tokens.items():
        sizes.bind(name, array, shapes[name])
        check_holds(name, array, "numbers")
    own = {name: len(shapes[name].split()) - 1 for name in tokens}
    batch = check_batches(tokens, own)
    if (
        spec.heads > 1
    ):  # whether an extra axis is one of heads is decided by the axes of the scores, without the values
        batch = check_batches({name: array for name, array in tokens.items() if name != "v"}, own)
    for name, array in arrays.items():
        sizes.bind(name, array, shapes[name], batch if shapes[name].startswith("…") else None)
        kind = holds(name, spec)
        check_holds(name, array, "summands" if name in SUMMANDS and kind == "numbers" else kind)
    if "doc" in inputs:  # its tokens are both queries and keys
        sizes.bind("doc", inputs["doc"], shape("keep", spec, inputs), batch)
    if spec.latent:
        sizes.check_sum("w_q" if "w_q" in inputs else "w_uq", "d_k", ("d_n", "d_r"))
    if spec.position:
        position_checks.check_sizes(
            spec, {letter: length for letter, (length, _) in sizes.found.items()}, inputs
        )


@lru_cache(maxsize=256)
def _shapes_of_spec_inputs(spec: Attention, names: frozenset[str]) -> dict[str, str]:
    """Return the shapes of the inputs in letters. Raises InputError for missing or misplaced inputs."""
    check_names(spec, names)
    if "x" in names:
        _check_names_of_x(spec, names)
    else:
        _check_names_of_q(spec, names)
    if spec.gates_projection and "w_o" not in names:
        raise InputError("a gate after the output projection needs the tokens x and w_o")
    # Sorted, so that the error does not depend on the order of a set.
    for name in sorted({*required(spec), *(_CONDITIONS.keys() & names)}, key=_PLACES.__getitem__):
        if name not in names:
            raise InputError(f"the specification needs input {name!r}")
        if not _CONDITIONS[name](spec):
            hint = f"; hint: Attention({name}=…)" if name in descriptions() else ""
            raise InputError(f"the specification has no input {name!r}{hint}")
    if spec.documents:
        _check_names_of_documents(spec, names)
    letters = same_letters(spec, names)
    return {
        name: _in_letters(name, spec, letters) for name in sorted(names, key=_PLACES.__getitem__)
    }


def holds(name: str, spec: Attention) -> str:
    """Return the kind of an input's elements, in words: numbers, booleans or whole numbers."""
    return "booleans" if name == "mask" and spec.mask == "boolean" else ARRAYS[name].holds


def shape(array: str, spec: Attention, names: Collection[str]) -> str:
    """Return the shape of an input or a step in letters, ``… [h] n_q d_k`` with the axes in brackets decided."""
    return _shape_in_letters(array, spec, frozenset(names))


# Every call checks the shapes of the same few names.
@lru_cache(maxsize=512)
def _shape_in_letters(array: str, spec: Attention, names: frozenset[str]) -> str:
    return _in_letters(array, spec, same_letters(spec, names))


def _in_letters(array: str, spec: Attention, letters: dict[str, str]) -> str:
    # Behind the output projection a gate has the columns of the output.
    is_late_gate = array == "gate" and spec.gates_projection
    axes = "… n_q d_out?" if is_late_gate else ARRAYS[array].shape
    result = [_axis_in_spec_letters(axis, spec, letters) for axis in axes.split()]
    return " ".join(axis for axis in result if axis)


def factors(array: str, spec: Attention, names: Collection[str]) -> tuple[str, ...]:
    """Return the letters of a shape, without batch axes and with products split: h*d_k gives h and d_k."""
    whole = shape(array, spec, names).replace("…", "").replace("?", "")
    return tuple(whole.replace("*", " ").replace("(", "").replace(")", "").split())


def lengths(
    array: str, spec: Attention, names: Collection[str], sizes: Mapping[str, int]
) -> tuple[int, ...]:
    """Return the shape of an array, without batch axes, if letters have the lengths ``sizes``."""
    known = {**spec.counts, **sizes}
    axes = shape(array, spec, names).replace("…", "").replace("(h?)", "").replace("?", "").split()
    return tuple(
        prod(int(f) if f.isdecimal() else known[f] for f in axis.split("*")) for axis in axes
    )


def _axis_in_spec_letters(axis: str, spec: Attention, letters: dict[str, str]) -> str:
    # Gains of a norm over all heads have the columns of all of them.
    if "*]" in axis:
        heads, letter = axis.removeprefix("[").split("*]")
        axis = f"{heads}*{letter}" if spec.qk_norm_over == "heads" else letter
    # Positions have rows if the sections of a rotation read them.
    if axis[0] == "{":
        return axis.strip("{}") if getattr(spec.position, "sections", None) else ""
    # Axes of heads exist only if there are several.
    if axis[0] in "[(" and spec.heads == 1:
        return ""
    axis = axis.strip("[]")
    if "*" in axis:
        factors = [letters.get(f, f) for f in axis.split("*")]
        return "*".join(f for f in factors if f not in ("h", "g") or spec.heads > 1)
    end = "?" if axis.endswith("?") else ""
    return letters.get(axis.rstrip("?"), axis.rstrip("?")) + end


def same_letters(spec: Attention, names: Collection[str]) -> dict[str, str]:
    """Return which letters are replaced by an equal size: n_k by n_q if tokens attend to themselves."""
    result: dict[str, str] = {}
    if "x" in names:
        if "y" not in names:
            result |= {"n_k": "n_q", "d_y": "d_model"}
        if spec.packed:
            result |= {"d_v": "d_k", "d_y": "d_model"}
        elif "w_q" not in names and spec.latent is None:
            # The tokens' own columns are those of queries, keys and values.
            apart, alike = (
                {"d_k": "d_model", "d_s": "d_y", "d_v": "d_y"},
                ("d_k", "d_s", "d_v", "d_y"),
            )
            result |= (
                apart if spec.score in WIDE and "y" in names else dict.fromkeys(alike, "d_model")
            )
    # Only general and additive scores let queries and keys differ in width.
    if spec.score not in WIDE or spec.packed:
        result["d_s"] = result.get("d_k", "d_k")
    result["d_w"] = "l_a" if spec.score == "additive" else result.get("d_s", "d_s")
    absorbed = spec.latent is not None and spec.latent.absorbed
    result |= {"j": "1", "d_j": "d_c"} if absorbed else {"j": "h", "d_j": "d_k"}
    # Without an output projection the heads stand side by side.
    if "w_o" not in names:
        wide = result.get("d_v", "d_v")
        result["d_out"] = f"h*{wide}" if spec.heads > 1 and "x" in names else wide
    return result


def required(spec: Attention) -> list[str]:
    """Return the inputs that the specification needs, without tokens, projections and documents."""
    return [name for name, wanted in NEEDED.items() if wanted(spec)]


@lru_cache(maxsize=512)
def accepted(spec: Attention) -> frozenset[str]:
    """Return the inputs that the specification takes, without tokens, projections and documents."""
    return frozenset(name for name, wanted in _CONDITIONS.items() if wanted(spec))


def needed(spec: Attention, names: Collection[str]) -> list[str]:
    """Return the inputs that the specification needs, without tokens and projections."""
    return required(spec) + ["doc"] * (spec.documents and not {"doc_q", "doc_k"} & set(names))


def check_combination(spec: Attention, names: Collection[str]) -> None:
    """Raise InputError if an input of attention is missing among ``names``, or one does not belong to the others.

    Names that no specification has are left out: they stand for what is computed from inputs.
    """
    _shapes_of_spec_inputs(spec, frozenset(name for name in names if name in ARRAYS))


def check_names(spec: Attention, names: Collection[str]) -> None:
    """Raise InputError for a name that is no input of any specification."""
    for name in names:
        if name not in ARRAYS or not (name in _CONDITIONS or name in _OF_X or name in TOKENS):
            known = accepted(spec) | {*_OF_X, *"qkv"}
            raise unknown("this attention", name, sorted(known), of_attention=True, what="input")


def _check_names_of_documents(spec: Attention, given: Collection[str]) -> None:
    names = [n for n in ("doc", "doc_q", "doc_k") if n in given]
    if names not in (["doc"], ["doc_q", "doc_k"]):
        raise InputError("the specification needs input 'doc', or 'doc_q' and 'doc_k'")
    if names != ["doc"] and spec.position is not None and not {"cos_q", "positions_q"} & set(given):
        raise InputError(
            "doc_q and doc_k: distances are counted over whole sequences; hint: doc, or position=None"
        )


def _check_names_of_q(spec: Attention, names: Collection[str]) -> None:
    missing = [n for n in "qkv" if n not in names]
    stray = [n for n in names if n in _OF_X]
    if missing:
        raise InputError(f"attention needs q, k, v or x; missing: {', '.join(missing)}")
    if stray:
        raise InputError(f"{stray[0]} belongs to x, which is not given")
    if spec.latent or spec.packed:
        raise InputError(f"{'latent' if spec.latent else 'packed'} projections need the tokens x")


def _check_names_of_x(spec: Attention, names: Collection[str]) -> None:
    # Two sources of queries would contradict each other.
    if any(n in names for n in "qkv"):
        raise InputError("give q, k, v or x, not both")
    weights = [n for n in ("w_q", "w_k", "w_v") if n in names]
    if spec.packed or spec.latent:
        wanted = ["w_q"] if spec.latent and not spec.latent.queries else []
        for name in weights:
            if name not in wanted:
                raise InputError(
                    f"{name} is made of {'w_in' if spec.packed else 'a latent'}; leave it out"
                )
        for name in wanted:
            if name not in weights:
                raise InputError(f"the specification needs input {name!r}")
    elif weights and len(weights) < 3:
        raise InputError(
            f"of w_q, w_k, w_v only {', '.join(weights)} given; give all three or none"
        )
    elif not weights and spec.heads > 1:
        raise InputError("heads > 1 needs the projections w_q, w_k, w_v")
    for bias, weight in zip(_BIASES, WEIGHTS, strict=True):
        if bias in names and weight not in names:
            raise InputError(f"{bias} belongs to {weight}, which is not given")
