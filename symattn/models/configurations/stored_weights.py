"""Convert stored weights of one attention to the inputs of ``Attention``: matrices for tokens on the left."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from symattn.attention.spec import Attention
from symattn.document.errors import InputError
from symattn.document.keywords import ROLES, plain
from symattn.models.configurations.configuration import CannotTell
from symattn.models.configurations.model_families import ModelFamily, Packing

Arrays = Mapping[str, np.ndarray]

#: Projections of single families by the last word of their name.
_OWN = {
    "pos_key_proj": "pk", "pos_query_proj": "pq",
    "q_a_proj": "dq", "q_b_proj": "uq", "kv_a_proj_with_mqa": "down", "kv_b_proj": "up",
}  # fmt: skip
#: Gains and tables, which are not transposed.
PLAIN = {
    "q_layernorm.weight": "g_q",
    "k_layernorm.weight": "g_k",
    "q_layernorm.bias": "beta_q",
    "k_layernorm.bias": "beta_k",
    "query_layernorm.weight": "g_q",
    "key_layernorm.weight": "g_k",
    "q_norm.weight": "g_q",
    "k_norm.weight": "g_k",
    "q_norm.bias": "beta_q",
    "k_norm.bias": "beta_k",
    "q_a_layernorm.weight": "g_cq",
    "kv_a_layernorm.weight": "g_ckv",
    "sinks": "sink",
    "relative_attention_bias.weight": "b_rel",
}
#: The gains of norms of queries and keys among these.
GAINS = ("q_norm.weight", "k_norm.weight")
#: Layers that already store their matrices for tokens on the left.
_LEFT = ("c_attn", "c_proj")
# Stored masks and frequencies, and norms after the attention, which are no weights of it.
_OTHERS = re.compile(r"(^|\.)(LayerNorm|masked_bias|bias|inv_freq|rotary_emb\.\w+)(\.\w+)?$")


def inputs(arrays: Arrays, spec: Attention, family: ModelFamily) -> dict[str, np.ndarray]:
    """Return w_q, b_q, … of one attention, from arrays by their names below it, such as ``q_proj.weight``.

    Raises ``CannotTell`` for an array that has no place in the specification.
    """
    weights: dict[str, np.ndarray] = {}
    for name, array in arrays.items():
        if name in PLAIN:
            weights[PLAIN[name]] = array + family.gains if name in GAINS else array
            continue
        module, _, what = name.rpartition(".")
        roles = _roles_of_projection_module(module)
        if len(roles) not in (1, 3) or what not in ("weight", "bias"):
            if passed_over(name):
                continue
            raise CannotTell(f"cannot tell what the weight {name[:60]!r} of the attention is")
        matrix = what == "weight"
        # Most layers store matrices for tokens on the right.
        array = array.T if matrix and module not in _LEFT and array.ndim == 2 else array
        parts = [array] if len(roles) == 1 else split(array, spec, family.packing)
        if family.gates_beside_queries and roles == ("q",):
            parts = [queries_of_gated(array, spec.heads)]
        weights |= {
            f"{'w' if matrix else 'b'}_{role}": part
            for role, part in zip(roles, parts, strict=True)
        }
    return _split_latent(weights, spec)


def _roles_of_projection_module(module: str) -> tuple[str, ...]:
    """Return the projections in a module, by its name below the attention; () if it is unknown."""
    word = module.rpartition(".")[2]
    return (_OWN[word],) if word in _OWN else ROLES.get(plain(word), ())


def passed_over(name: str) -> bool:
    """Return whether an array is no weight of the attention, by its name below it: a stored mask, a norm after it.

    >>> passed_over("bias"), passed_over("q_proj.bias")
    (True, False)
    """
    module, _, what = name.rpartition(".")
    weight = name in PLAIN or (
        bool(_roles_of_projection_module(module)) and what in ("weight", "bias")
    )
    return not weight and _OTHERS.search(name) is not None


def split(packed: np.ndarray, spec: Attention, packing: Packing) -> list[np.ndarray]:
    """Split one matrix into q, k and v."""
    if packing == "rows":  # all of q, all of k, all of v: (…, (h + 2 h_kv) d)
        each = _divide_packed_columns(packed, spec.heads + 2 * spec.key_heads)
        ends = each * spec.heads, each * (spec.heads + spec.key_heads)
        return np.split(packed, ends, axis=-1)
    # by heads of keys, each with its queries, its keys, its values: (…, h_kv (h / h_kv + 2) d)
    queries, front = spec.group, packed.shape[:-1]
    each = _divide_packed_columns(packed, spec.key_heads * (queries + 2))
    groups = packed.reshape(*front, spec.key_heads, queries + 2, each)
    # After the queries of a group come its key and its value.
    of_queries = groups[..., :queries, :]
    parts = of_queries, groups[..., queries, :], groups[..., queries + 1, :]
    return [part.reshape(*front, -1) for part in parts]


def queries_of_gated(packed: np.ndarray, heads: int) -> np.ndarray:
    """Return the columns of queries where each head has those of its queries, then those of its output's gate."""
    each = _divide_packed_columns(packed, 2 * heads)
    by_head = packed.reshape(*packed.shape[:-1], heads, 2, each)
    return by_head[..., 0, :].reshape(*packed.shape[:-1], -1)


def _divide_packed_columns(packed: np.ndarray, parts: int) -> int:
    """Return the columns of one head. Raises ``InputError`` for columns that cannot be divided evenly."""
    columns = packed.shape[-1]
    if columns % parts:
        raise InputError(f"{columns} columns of q, k and v are not {parts} heads of one width")
    return int(columns) // parts


def _split_latent(results: dict[str, np.ndarray], spec: Attention) -> dict[str, np.ndarray]:
    """Split the down projection into W_DKV and W_KR, and the up projection head by head into W_UK and W_UV."""
    if spec.latent is None:
        return results
    down, up = results.pop("w_down"), results.pop("w_up")
    if "b_down" in results or "b_dq" in results:
        raise CannotTell("projections to a latent have biases, for which there is no input")
    rank = up.shape[0]
    by_head = up.reshape(rank, spec.heads, -1)
    queries = results["w_uq" if spec.latent.queries else "w_q"].shape[-1] // spec.heads
    own = queries - (down.shape[-1] - rank)
    return {
        **results,
        "w_dkv": down[:, :rank],
        "w_kr": down[:, rank:],
        "w_uk": by_head[..., :own].reshape(rank, -1),
        "w_uv": by_head[..., own:].reshape(rank, -1),
    }
