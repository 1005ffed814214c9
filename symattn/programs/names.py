"""Names: the input of a specification that a parameter stands for, targets that are files; parameters of functions."""

from __future__ import annotations

import ast
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter
from pathlib import Path
from typing import Any

from symattn.attention.inputs import NEEDED, OPTIONAL
from symattn.attention.letters_of_attention import ARRAYS
from symattn.attention.spec_fields import settings
from symattn.document.keywords import FIELDS, OTHERS, plain

#: A user's function, with any parameters.
Function = Callable[..., Any]

#: Common names of parameters, by meaning; those of inputs stand in their rows.
_SPELLINGS = {
    **{name: f"{name} {row.also}" for name, row in ARRAYS.items() if row.also},
    "lengths": "lengths lens seq_lens seqlens seq_lengths sequence_lengths valid_len valid_lens valid_length "
    "length valid_lengths kv_len kv_lens kv_lengths kv_length key_lengths k_lens cache_seqlens context_lens n_valid "
    "num_valid",
    "past": "past_len past_length past offset start_pos start_position kv_offset q_offset query_offset pos_offset "
    "position_offset n_past past_kv_len cache_len cache_length",
    "n_q": "n_q seqlen_q max_seqlen_q seq_len_q q_len query_length seq_len seqlen",
    "n_k": "n_k seqlen_k max_seqlen_k seq_len_k kv_seq_len k_len key_length max_seqlen",
    "bounds": "cu_seqlens cu_seqlens_q cu_seqlens_k cu_seqlens_kv cu_seq_lens cu_seq_lens_q cu_seq_lens_k",
    "more": "return_weights return_attn return_attention return_attn_weights return_attn_probs return_scores "
    "return_probs need_weights output_attentions return_cache use_cache training train is_training",
    "tile": "block_size tile tile_size chunk chunk_size block_q block_k block_m block_n bq bk block_kv tile_q tile_k",
    "rope_base": "theta rope_theta rope_base rotary_base",
    "rotary_width": "rotary_dim rot_dim rope_dim",
    "interleaved": "interleaved interleave rotary_interleaved",
    "buckets": "num_buckets n_buckets",
    "max_distance": "max_distance",
    "bidirectional": "bidirectional",
    "repeats": "n_rep repeats group_size q_per_kv num_key_value_groups",
}
_SPELLINGS["d_k"] = f"d_k {OTHERS['d_k']}"
# The other names of a field stand for its value, its input or its result.
for _name in FIELDS:
    if _name in settings() or _name in NEEDED or _name == "lse":
        _SPELLINGS[_name] = f"{_name} {FIELDS[_name]}"
for _name, _word in (("q", "query"), ("k", "key"), ("v", "value"), ("o", "out")):
    _SPELLINGS[f"w_{_name}"] = (
        f"w_{_name} weight_{_name} {_name}_weight {_name}_proj_weight w_{_word} {_word}_weight"
    )
    _SPELLINGS[f"w_{_name}"] += f" {_name}_proj proj_{_name} {_word}_proj"
    _SPELLINGS[f"b_{_name}"] = (
        f"b_{_name} bias_{_name} {_name}_bias {_name}_proj_bias b_{_word} {_word}_bias"
    )
_SPELLINGS["w_o"] += " out_proj_weight w_output"
_SPELLINGS["b_o"] += " out_proj_bias b_output"

#: Inputs that are masks.
MASKS = ("mask", "keep")
#: Fields that a function may take as plain settings.
SETTINGS = settings()
#: Other meanings of parameters: numbers that follow from the sizes, further results, sizes of tiles.
AROUND = ("past", "n_q", "n_k", "d_k", "bounds", "lengths", "lse", "more", "tile", "repeats")
#: Fields of a position.
OF_POSITIONS = {
    "rope_base": "base",
    "rotary_width": "width",
    "interleaved": "layout",
    "buckets": "number",
    "max_distance": "max_distance",
    "bidirectional": "bidirectional",
}
TILE = 16  # passed if a size of tiles is required

# True means "keep" to some authors and "ignore" to others, as in torch.nn.MultiheadAttention: a trial decides.
AMBIGUOUS = (
    "keypaddingmask",
    "paddingmask",
    "srckeypaddingmask",
    "padmask",
    "kvpaddingmask",
    "padding",
    "ispadding",
)


#: Meanings by plain name; a spelling above outweighs the name of an input.
_MEANINGS = {plain(name): name for name in (*NEEDED, *OPTIONAL)} | {
    plain(word): meaning for meaning, words in _SPELLINGS.items() for word in words.split()
}


def meaning(name: str) -> str | None:
    """Return the input or setting that a parameter called ``name`` stands for, or None if that is unknown."""
    return _MEANINGS.get(plain(name))


def match_names(words: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Return {name of a parameter: input}, each input once: by its own name, or by other ``words`` for it.

    Letters as they are written come first: a parameter b is β, and B is the keys of Mamba.

    >>> match_names({"k": "key B", "beta": "b"}, ["b", "B"])
    {'B': 'k', 'b': 'beta'}
    """
    names, result = [*names], dict[str, str]()
    ways: tuple[Callable[[str, str], bool], ...] = (
        lambda name, own: name == own,
        lambda name, own: plain(name) == plain(own),
        lambda name, own: name in words[own].split(),
        lambda name, own: plain(name) in map(plain, words[own].split()),
        # Rows have the same names in every definition.
        lambda name, own: own in _ROWS and meaning(name) == own,
    )
    for is_called in ways:
        for own in words:
            fitting = [name for name in names if name not in result and is_called(name, own)]
            if fitting and own not in result.values():
                result[fitting[0]] = own
    return result


_ROWS = ("q", "k", "v")


def gain(layer: str, parameter: str) -> str | None:
    """Return the gain of normalised queries or keys that a parameter (of a layer) stands for, or None.

    >>> gain("q_norm", "weight"), gain("", "g_k"), gain("q_proj", "weight")
    ('g_q', 'g_k', None)
    """
    result = meaning(f"{layer}_{parameter}")
    return result if result in ("g_q", "g_k") else None


#: Suffixes of files with the arrays of a run.
TRACES = (".safetensors", ".npz")


def is_trace(target: str) -> bool:
    """Return whether a target is the name of a file of arrays.

    >>> is_trace("run.safetensors"), is_trace("attn.py:attention")
    (True, False)
    """
    return Path(target).suffix.lower() in TRACES


# -- parameters of a function: from its signature, or for a builtin from the first line of its documentation -----------
#: Kinds of parameters: those that take any number of arguments, and those that may be filled by position.
STARS = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
PLACED = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def parameters(function: Function) -> tuple[Parameter, ...] | None:
    """Return the parameters in order, or None if neither a signature nor a documented one can be read.

    For a torch module, whose own call takes anything, they are those of its ``forward``.
    """
    function = getattr(function, "forward", function) if is_module(function) else function
    try:
        return tuple(inspect.signature(function).parameters.values())
    except (ValueError, TypeError):
        # The documentation of torch's builtins begins with ``name(query, …) -> Tensor``.
        name = re.escape(getattr(function, "__name__", ""))
        start = (
            re.match(rf"\s*{name}(\([^()]*(?:\([^()]*\)[^()]*)*\))", function.__doc__ or "")
            if name
            else None
        )
        if start is None:
            return None
        try:
            # Parsed as a definition, in place of the signature that a builtin lacks.
            tree = ast.parse(f"def f{start[1]}: pass").body[0]
        except SyntaxError:
            return None
        return _of_tree(tree.args) if isinstance(tree, ast.FunctionDef) else None


def is_module(function: object) -> bool:
    """Return whether a function is an instance of ``torch.nn.Module``, without importing torch."""
    return any(
        (c.__module__, c.__name__) == ("torch.nn.modules.module", "Module")
        for c in type(function).__mro__
    )


def called(name: str, given: tuple[Parameter, ...] | None) -> str:
    """Return ``attention(q, k, *args)``, with the names of the parameters; the name alone if they are unknown."""
    bare = (str(p.replace(default=p.empty, annotation=p.empty)) for p in given or ())
    return name if given is None else f"{name}({', '.join(bare)})"


def on_first(change: Function, output: object) -> Any:
    """Return the output of a function with its first item changed, or changed itself if it is no sequence."""
    first, *others = output if isinstance(output, (tuple, list)) and output else (output,)
    return (change(first), *others) if others else change(first)


def without_partial(function: Function) -> Function:
    """Return the function inside ``functools.partial``."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def bound_keywords(function: Function) -> frozenset[str]:
    """Return the keywords that ``functools.partial`` already binds."""
    bound: frozenset[str] = frozenset()
    while isinstance(function, functools.partial):
        bound |= frozenset(function.keywords)
        function = function.func
    return bound


def _of_tree(arguments: ast.arguments) -> tuple[Parameter, ...]:
    positional = [*arguments.posonlyargs, *arguments.args]
    first_default = len(positional) - len(arguments.defaults)
    # Defaults are not needed as values; it matters only whether there is one.
    result = [
        Parameter(
            a.arg,
            Parameter.POSITIONAL_OR_KEYWORD,
            default=Parameter.empty if i < first_default else None,
        )
        for i, a in enumerate(positional)
    ]
    for a, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        result.append(
            Parameter(
                a.arg, Parameter.KEYWORD_ONLY, default=Parameter.empty if default is None else None
            )
        )
    return tuple(result)
