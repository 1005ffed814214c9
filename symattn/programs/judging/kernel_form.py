"""How the kernel of a benchmark takes its inputs: outputs allocated by the caller, several requests in one call.

A definition of attention has q, k, v of one batch. A kernel may take the tokens of several requests one after the
other, with offsets (``indptr``), or keys and values in pages of a cache, with a table of pages. Each call of the
definition is then one call of such a kernel: the items of the batch are its requests, put before, after or between
requests of other lengths whose outputs nobody asks for, with the pages in mixed order; the outputs are gathered again.
A mask of the definition becomes that of all requests together, see ``request_masks``.

Names of inputs: https://github.com/flashinfer-ai/flashinfer-bench, docs/op_type_schema/gqa_ragged.md, gqa_paged.md,
mla_paged.md.
Outputs as last arguments (destination passing): https://github.com/NVIDIA/SOL-ExecBench, docs/solution.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from inspect import Parameter
from itertools import pairwise
from typing import Any

import numpy as np

from symattn.document.errors import InputError
from symattn.document.keywords import plain
from symattn.programs.frameworks import Tensor, import_torch
from symattn.programs.judging.neighbours import choose_neighbours
from symattn.programs.judging.recurrent_form import RecurrentForm, RecurrentKernel
from symattn.programs.judging.request_masks import (
    MASK_OFFSETS,
    NAMES_OF_MASKS,
    NAMES_OF_OFFSETS,
    RequestMask,
    read_request_mask,
)
from symattn.programs.names import Function, meaning, parameters
from symattn.programs.packed import Wrapper

#: Roles of inputs that separate the requests of a call.
Q_OFFSETS, K_OFFSETS, PAGES, LAST, TABLE, LENGTHS = (
    "q offsets",
    "k offsets",
    "pages",
    "last page",
    "table",
    "lengths",
)
#: Roles of inputs of latent attention, whose one key is [latent, positions], and whose one value is the latent.
Q_LATENT, Q_POSITIONS, LATENTS, POSITIONS = "q latent", "q positions", "latents", "positions"
_OF_LATENTS = (Q_LATENT, Q_POSITIONS, LATENTS, POSITIONS)
#: Names of the inputs of kernels, by role.
_ROLES = {
    Q_OFFSETS: "qo_indptr q_indptr cu_seqlens_q cu_seq_lens_q",
    K_OFFSETS: "kv_indptr k_indptr cu_seqlens_k cu_seqlens_kv cu_seq_lens_k cu_seq_lens_kv",
    PAGES: "kv_indices kv_page_indices page_indices",
    LAST: "kv_last_page_len last_page_len",
    TABLE: "page_table block_table block_tables page_tables",
    LENGTHS: "seq_lens cache_seqlens kv_len_arr kv_lens kv_seq_lens context_lens",
    "k": "k_cache key_cache paged_k_cache",
    "v": "v_cache value_cache paged_v_cache",
    Q_LATENT: "q_nope",
    Q_POSITIONS: "q_pe q_rope",
    LATENTS: "ckv_cache ckv kv_c_cache compressed_kv_cache",
    POSITIONS: "kpe_cache kpe k_pe_cache k_rope_cache",
    MASK_OFFSETS: NAMES_OF_OFFSETS,
    "mask": NAMES_OF_MASKS,
}
#: The role of each name.
_ROLE_OF = {plain(name): role for role, names in _ROLES.items() for name in names.split()}
#: What tells the requests of a call apart, beside q, k, v and a scale.
_KNOWN_SETS = (
    {Q_OFFSETS, K_OFFSETS},
    {K_OFFSETS, PAGES},
    {K_OFFSETS, PAGES, LAST},
    {K_OFFSETS, PAGES, LENGTHS},
    {TABLE, LENGTHS},
)
_SPARE_PAGES = 2  # of a cache, that belong to no request
_LONGER = 3  # keys by which another request is longer than those that are judged


def role_of(name: str) -> str | None:
    """Return what an input is to a kernel of several requests; None if that is unknown."""
    return _ROLE_OF.get(plain(name)) or meaning(name)


@dataclass(frozen=True)
class LatentWidths:
    """The widths of latent attention in its absorbed form: scores q_c·c + q_p·p, and the latent c as value.

    Attention of any q, k, v with one head of keys has this form: some columns of the latent hold a part of the key, the
    others hold the value, and the queries are zero there. Which columns these are is drawn anew for each size.
    Widths of keys and values agree, as half the sum of both widths. Source: DeepSeek-AI, DeepSeek-V2 (2024), §2.1.2.
    """

    latent: int
    positions: int

    @property
    def width(self) -> int:
        """The width of the keys, and of the values, that fit into a latent and its positions."""
        return (self.latent + self.positions) // 2

    @property
    def own(self) -> int:
        """The number of columns of a key that are in the latent."""
        return self.width - self.positions


@dataclass(frozen=True)
class RequestBatch:
    """The inputs of a kernel of several requests, in their order, with their roles; and the size of a page.

    ``latents`` are the widths of latent attention, if the kernel computes that, and ``mask`` is that of all requests.
    """

    roles: tuple[tuple[str, str], ...]
    page_size: int | None = None
    latents: LatentWidths | None = None
    mask: RequestMask | None = None

    @property
    def decodes(self) -> bool:
        """Return whether each request has one query."""
        return Q_OFFSETS not in dict(self.roles).values()

    def shapes(
        self, inputs: Mapping[str, tuple[str, ...]], sizes: Mapping[str, int]
    ) -> list[tuple[int, ...]]:
        """Return the shapes of q, k, v, (b, n, h, d), of requests as many and as long as these sizes have on average.

        A mask, which comes last, is the same for all requests. The neighbours of the judged requests are among those
        counted.
        """
        axes = {role: inputs[name] for name, role in self.roles}

        def size(role: str, axis: int = 0) -> int:
            return sizes[axes[role][axis]]

        q, k, v = ("q", "k", "v") if self.latents is None else (Q_LATENT, LATENTS, LATENTS)
        offsets = next((role for role in (Q_OFFSETS, K_OFFSETS) if role in axes), None)
        requests = max(size(offsets) - 1 if offsets else size(LENGTHS), 1)
        if PAGES in axes:
            keys = size(PAGES) * (self.page_size or 1)
        elif TABLE in axes:
            keys = size(TABLE, 1) * (self.page_size or 1) * requests
        else:
            keys = size(k)
        n_q = 1 if self.decodes else max(size(q) // requests, 1)
        n_k = max(keys // requests, n_q)  # with a causal mask each query has a key then
        judged = max(requests - choose_neighbours(n_q, n_k).number, 1)
        if self.latents is not None:
            of_keys = judged, n_k, 1, self.latents.width
            of_queries = judged, n_q, size(q, -2), self.latents.width
            result: list[tuple[int, ...]] = [of_queries, of_keys, of_keys]
        else:
            result = [
                (judged, n, size(role, -2), size(role, -1))
                for role, n in ((q, n_q), (k, n_k), (v, n_k))
            ]
        if self.mask is None:
            return result
        return [*result, (n_k,) if self.mask.of_keys else (n_q, n_k)]


@dataclass(frozen=True)
class KernelForm:
    """The axes of a kernel's inputs, the axes and formats of its outputs, and how it takes several requests, if so.

    ``base_two`` says that the logarithms of the sums are those to the base 2. A kernel of linear attention has a
    ``recurrent`` form.
    """

    inputs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    outputs: Mapping[str, tuple[tuple[str, ...], str]] = field(default_factory=dict)
    constants: Mapping[str, int] = field(default_factory=dict)
    batch: RequestBatch | None = None
    base_two: bool = False
    recurrent: RecurrentForm | None = None

    def around(self, function: Function, name: str) -> Function:
        """Return the kernel as a function of the definition's inputs that returns its outputs."""
        parameter_names = [p.name for p in parameters(function) or ()]
        # Wrappers nest from the kernel outwards: outputs, requests, logarithms.
        result = function
        # All outputs are among its parameters: the kernel writes into them.
        if self.outputs and set(self.outputs) <= set(parameter_names):
            result = Returning(result, self, name)
        if self.batch is not None:
            result = Batched(result, self.batch, name)
        if self.recurrent is not None:
            result = RecurrentKernel(result, self.recurrent, name)
        if self.base_two:
            result = NaturalLogarithms(result, name)
        return result


def batch_of(
    inputs: Mapping[str, tuple[str, ...]], constants: Mapping[str, int]
) -> RequestBatch | None:
    """Return how a kernel with these inputs takes several requests; None if it takes one batch of arrays.

    Raises ``InputError`` for inputs of several requests that are not read, with their names.
    """
    roles = {name: role_of(name) for name in inputs}
    # Names of a cache alone do not mean several requests.
    of_one = {"k", "v", "mask", *_OF_LATENTS}
    several = {role for role in roles.values() if role in _ROLES} - {*of_one, MASK_OFFSETS}
    if not several:
        return None
    paged = PAGES in several or TABLE in several
    mask = read_request_mask(inputs, roles, decodes=Q_OFFSETS not in several, is_paged=paged)
    of_mask = set() if mask is None else {mask.role, MASK_OFFSETS}
    of_latents = set(_OF_LATENTS) <= set(roles.values())
    attends = _OF_LATENTS if of_latents else ("q", "k", "v")
    known_roles = {*attends, "scale", *several, *of_mask}
    unread = [name for name, role in roles.items() if role not in known_roles]
    if unread:
        raise InputError(
            f"its inputs {', '.join(unread)} are not read beside requests of several lengths"
        )
    lacking = [role for role in attends if role not in roles.values()]
    if lacking:
        raise InputError(
            f"it has requests of several lengths, and no input is {', '.join(lacking)} by its name"
        )
    # Offsets of queries may come with any set; without them each request has one query.
    if not any(several in (known, known | {Q_OFFSETS}) for known in _KNOWN_SETS):
        named = ", ".join(name for name, role in roles.items() if role in several)
        raise InputError(f"{named} alone do not tell its requests apart")
    size = _page_size(inputs, roles, constants) if paged else None
    latents = _latent_widths(inputs, roles, constants) if of_latents else None
    # Pages of one key are always full.
    if size is not None and size > 1 and not {LAST, LENGTHS} & several:
        raise InputError(f"no input gives the number of keys in the last page of {size}")
    named_roles = tuple((name, str(role)) for name, role in roles.items())
    return RequestBatch(named_roles, size, latents, mask)


def _page_size(
    inputs: Mapping[str, tuple[str, ...]],
    roles: Mapping[str, str | None],
    constants: Mapping[str, int],
) -> int:
    """Return the constant second axis of the cache: (pages, page size, heads, width), without heads for latents."""
    name, role = next((name, role) for name, role in roles.items() if role in ("k", LATENTS))
    axes, heads = inputs[name], "heads, " * (role == "k")
    if len(axes) != (4 if heads else 3) or axes[1] not in constants:
        raise InputError(f"{name} has no axes (pages, constant page size, {heads}width)")
    return constants[axes[1]]


def _latent_widths(
    inputs: Mapping[str, tuple[str, ...]],
    roles: Mapping[str, str | None],
    constants: Mapping[str, int],
) -> LatentWidths:
    """Return the widths of latents and of positions. Raises ``InputError`` for widths that hold no key and value."""
    names = {role: name for name, role in roles.items()}
    last = {role: constants.get((inputs[names[role]] or ("",))[-1]) for role in _OF_LATENTS}
    latent, positions = last[LATENTS], last[POSITIONS]
    # Queries and keys must be split at the same column.
    if (
        latent is None
        or positions is None
        or (last[Q_LATENT], last[Q_POSITIONS]) != (latent, positions)
    ):
        raise InputError(
            f"{names[LATENTS]} and {names[POSITIONS]} have no constant widths that the queries share"
        )
    if latent <= positions or (latent + positions) % 2:
        raise InputError(
            f"{names[LATENTS]} and {names[POSITIONS]} are {latent} and {positions} wide; "
            "hint: latents must be the wider ones, and the sum even"
        )
    return LatentWidths(latent, positions)


class Returning(Wrapper):
    """A kernel that writes into outputs which it is given, as a function that returns them."""

    is_self_contained = True

    def __init__(self, function: Function, form: KernelForm, name: str) -> None:
        own = [p for p in parameters(function) or () if p.name not in form.outputs]
        super().__init__(function, own, "outputs are given", name)
        self._function, self._form = function, form
        self.note = f"It is given {', '.join(form.outputs)}, filled with NaN, and writes into them"

    def __call__(self, *places: Tensor, **keywords: Tensor) -> Tensor:
        torch, form = import_torch(), self._form
        arguments = self.__signature__.bind(*places, **keywords).arguments
        arrays = {
            name: array
            for name, array in arguments.items()
            if name in form.inputs and hasattr(array, "shape")
        }
        sizes = dict(form.constants)
        for name, array in arrays.items():
            # Outputs of no other shape are known; a kernel of fixed axes would refuse, too.
            if len(array.shape) != len(form.inputs[name]):
                raise ValueError(f"{name} has the axes {', '.join(form.inputs[name])} alone")
            sizes |= zip(form.inputs[name], array.shape, strict=True)
        first = next(iter(arrays.values()))
        output_tensors = {}
        for name, (axes, dtype) in form.outputs.items():
            shape = [sizes[axis] for axis in axes]
            # NaN shows an entry that the kernel never writes.
            output_tensors[name] = torch.full(
                shape, math.nan, dtype=_dtype_of(torch, dtype, first), device=first.device
            )
        self._function(**arguments, **output_tensors)
        results = tuple(output_tensors.values())
        return results if len(results) > 1 else results[0]


def _dtype_of(torch: Any, named: str, first: Tensor) -> Any:
    """Return the format of an output: the one that is judged, or float32 where the definition says float32."""
    return torch.float32 if named == "float32" else first.dtype


class NaturalLogarithms(Wrapper):
    """A kernel that returns an output and logarithms to the base 2, which are made natural ones."""

    is_self_contained = True

    def __init__(self, function: Function, name: str) -> None:
        super().__init__(function, parameters(function) or (), "base 2", name)
        self._function = function
        self.note = "The logarithms of its sums are those to the base 2"

    def __call__(self, *places: Tensor, **keywords: Tensor) -> Tensor:
        results = self._function(*places, **keywords)
        if not isinstance(results, tuple | list) or len(results) < 2:
            return results
        output, logarithms, *others = results
        return (output, logarithms * math.log(2.0), *others)


class Batched(Wrapper):
    """A kernel of several requests as a function of q, k, v with the axes (b, n, h, d): see this module's docstring."""

    is_self_contained = True

    def __init__(self, function: Function, batch: RequestBatch, name: str) -> None:
        names = [*"qkv", *([] if batch.mask is None else [batch.mask.name])]
        own = [Parameter(n, Parameter.POSITIONAL_OR_KEYWORD) for n in names]
        super().__init__(function, own, "several requests", name)
        self._function, self._batch = function, batch
        pages = "" if batch.page_size is None else f" in pages of {batch.page_size}, in mixed order"
        self.note = f"Each call has requests of other lengths before those that are judged, after them, or both{pages}"

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, *masks: Tensor, **named: Tensor) -> Tensor:
        torch = import_torch()
        neighbours = choose_neighbours(q.shape[1], k.shape[1])
        requests = _with_neighbours(torch, q, k, v)
        requests = requests[neighbours.kept(len(requests))]
        judged = slice(int(neighbours.before), int(neighbours.before) + len(q))
        queries = _Joined(torch, [request[0] for request in requests])
        lengths = [len(request[1]) for request in requests]
        slots, total = _slots_of(lengths, self._batch.page_size)
        keys, values = (
            _scatter_into_page_slots(torch, [r[i] for r in requests], slots, total) for i in (1, 2)
        )
        arrays = _arrays_of(self._batch, torch, queries.whole, keys, values)
        of_mask = {}
        if self._batch.mask is not None:
            (mask,) = (*masks, *named.values())
            sizes = [(len(request[0]), len(request[1])) for request in requests]
            of_mask = self._batch.mask.told(torch, mask, sizes, judged)
        told = {
            **arrays.told(self._batch.page_size),
            "scale": 1 / math.sqrt(q.shape[-1]),
            **_make_request_tables(
                torch, queries.lengths, lengths, slots, self._batch.page_size, q.device
            ),
            **of_mask,
        }
        results = self._function(**{name: told[role] for name, role in self._batch.roles})
        rows = queries.rows(judged)
        at = torch.as_tensor(np.concatenate(slots[judged]), device=q.device)
        whole_q, whole_k, whole_v = arrays.attended()
        for original, now in ((q, whole_q[rows]), (k, whole_k[at]), (v, whole_v[at])):
            back = now.reshape(original.shape)
            if not torch.equal(
                back, original
            ):  # the kernel has changed its inputs, which the caller is to see
                original.copy_(back)
        outputs = results if isinstance(results, tuple | list) else (results,)
        gathered = [
            _gather_judged_requests(arrays.output(output), rows, q.shape, queries.whole)
            for output in outputs
        ]
        return tuple(gathered) if len(gathered) > 1 else gathered[0]


@dataclass(frozen=True)
class _HeadArrays:
    """Queries (t, h, d), and keys and values (s, g, d), which a kernel takes as they are."""

    q: Tensor
    k: Tensor
    v: Tensor

    def told(self, page_size: int | None) -> dict[str, Tensor]:
        """Return the arrays that the kernel takes, by their roles."""
        return {"q": self.q, "k": _in_pages(self.k, page_size), "v": _in_pages(self.v, page_size)}

    def attended(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return q, k, v as they are in these arrays now."""
        return self.q, self.k, self.v

    def output(self, output: Tensor) -> Tensor:
        """Return the part of an output that the definition has."""
        return output


class _LatentArrays:
    """Queries, keys and values within the arrays of latent attention; see ``LatentWidths``."""

    def __init__(self, torch: Any, widths: LatentWidths, q: Tensor, k: Tensor, v: Tensor) -> None:
        self._widths, own = widths, widths.own
        # The seed makes calls repeatable; another number of tokens has other columns.
        order = np.random.default_rng(len(q) + len(k)).permutation(widths.latent)
        self._of_key, self._of_value = (
            torch.as_tensor(part, device=q.device) for part in (order[:own], order[own:])
        )
        self._q = torch.zeros((*q.shape[:-1], widths.latent), dtype=q.dtype, device=q.device)
        self._q[..., self._of_key] = q[..., :own]
        self._q_positions = q[..., own:].contiguous()
        self._latents = torch.zeros((len(k), widths.latent), dtype=k.dtype, device=k.device)
        self._latents[:, self._of_key] = k[:, 0, :own]
        self._latents[:, self._of_value] = v[:, 0]
        self._positions = k[:, 0, own:].contiguous()
        self._cat = torch.cat

    def told(self, page_size: int | None) -> dict[str, Tensor]:
        """Return the arrays that the kernel takes, by their roles."""
        return {
            Q_LATENT: self._q,
            Q_POSITIONS: self._q_positions,
            LATENTS: _in_pages(self._latents, page_size),
            POSITIONS: _in_pages(self._positions, page_size),
        }

    def attended(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return q, k, v as they are in these arrays now."""
        q = self._cat([self._q[..., self._of_key], self._q_positions], -1)
        k = self._cat([self._latents[:, self._of_key], self._positions], -1)
        return q, k[:, None], self._latents[:, self._of_value][:, None]

    def output(self, output: Tensor) -> Tensor:
        """Return the columns of an output that are those of the values; logarithms, and other widths, as they are."""
        shape: tuple[int, ...] = getattr(output, "shape", ())
        whole = len(shape) == 3 and shape[-1] == self._widths.latent
        return output[..., self._of_value] if whole else output


def _arrays_of(
    batch: RequestBatch, torch: Any, q: Tensor, k: Tensor, v: Tensor
) -> _HeadArrays | _LatentArrays:
    return (
        _HeadArrays(q, k, v)
        if batch.latents is None
        else _LatentArrays(torch, batch.latents, q, k, v)
    )


class _Joined:
    """Arrays one after the other along their first axis."""

    def __init__(self, torch: Any, parts: Sequence[Tensor]) -> None:
        self.whole = torch.cat([*parts])
        self.lengths = [len(part) for part in parts]

    def rows(self, chosen: slice) -> slice:
        """Return the rows of some of the parts, which follow each other."""
        return slice(sum(self.lengths[: chosen.start]), sum(self.lengths[: chosen.stop]))


def _with_neighbours(torch: Any, q: Tensor, k: Tensor, v: Tensor) -> list[tuple[Tensor, ...]]:
    """Return the requests of a batch between two others, one longer and one shorter.

    These have the numbers of the first request in other places, and negated values: they are within all that is
    promised of the inputs, and an output to which they contribute is wrong.
    """
    judged = list(zip(q, k, v, strict=True))
    first_q, first_k, first_v = judged[0]
    # A longer neighbour: code that mixes up requests reads its numbers.
    more = (
        first_k[:1].expand(_LONGER, *first_k.shape[1:]),
        -first_v[:1].expand(_LONGER, *first_v.shape[1:]),
    )
    before = (
        first_q.flip(0),
        torch.cat([first_k.roll(1, 0), more[0]]),
        torch.cat([-first_v, more[1]]),
    )
    # A shorter one behind it, with other values.
    after = first_q[:1], first_k[:1], -first_v[-1:]
    return [before, *judged, after]


def _slots_of(lengths: Sequence[int], page_size: int | None) -> tuple[list[np.ndarray], int]:
    """Return where the keys of each request stand in the cache, and how many places it has.

    Without pages they stand one after the other.
    """
    if page_size is None:
        ends = np.cumsum([0, *lengths])
        return [np.arange(a, b) for a, b in pairwise(ends)], int(ends[-1])
    needed = [-(-n // page_size) for n in lengths]
    count = sum(needed) + _SPARE_PAGES
    # Mixed order shows a kernel that ignores its table; the seed makes calls repeatable.
    pages = np.random.default_rng(count).permutation(count)
    ends = np.cumsum([0, *needed])
    result = []
    for n, a, b in zip(lengths, ends, ends[1:], strict=False):
        places = pages[a:b, None] * page_size + np.arange(page_size)
        result.append(places.ravel()[:n])
    return result, count * page_size


def _scatter_into_page_slots(
    torch: Any, parts: Sequence[Tensor], slots: Sequence[np.ndarray], total: int
) -> Tensor:
    """Return the keys or values of all requests in their places; other places repeat the first entry."""
    first = parts[0]
    result = first[:1].expand(total, *first.shape[1:]).clone()
    for part, places in zip(parts, slots, strict=True):
        result[torch.as_tensor(places, device=first.device)] = part
    return result


def _in_pages(flat: Tensor, page_size: int | None) -> Tensor:
    """Return the same memory with an axis for pages, if there are pages."""
    return flat if page_size is None else flat.reshape(-1, page_size, *flat.shape[1:])


def _make_request_tables(
    torch: Any,
    queries: Sequence[int],
    keys: Sequence[int],
    slots: Sequence[np.ndarray],
    page_size: int | None,
    device: Any,
) -> dict[str, Tensor]:
    """Return the tables that tell requests apart, by their roles, as 32-bit integers."""

    def table(values: Any) -> Tensor:
        return torch.as_tensor(np.asarray(values, dtype=np.int32), device=device)

    size = page_size or 1
    # The first place of a page, divided by the page size, is the number of the page.
    pages = [places[::size] // size for places in slots]
    # With pages, offsets count pages and not keys.
    counts = keys if page_size is None else [len(of) for of in pages]
    widest = max(map(len, pages))
    return {
        Q_OFFSETS: table(np.cumsum([0, *queries])),
        K_OFFSETS: table(np.cumsum([0, *counts])),
        PAGES: table(np.concatenate(pages)),
        # Keys in the last page of each request, from 1 to the page size.
        LAST: table([(n - 1) % size + 1 for n in keys]),
        # Shorter rows of the table are padded with page 0, which their lengths exclude.
        TABLE: table([np.pad(of, (0, widest - len(of))) for of in pages]),
        LENGTHS: table(keys),
    }


def _gather_judged_requests(
    output: Tensor, rows: slice, shape: Sequence[int], queries: Tensor
) -> Tensor:
    """Return the rows of the judged requests: (b, n, h, d), or (b, h, n) for logarithms of sums.

    An output of another length is returned as it is: its shape is wrong.
    """
    if getattr(output, "ndim", 0) < 2 or len(output) != len(queries):
        return output
    batch, tokens = shape[:2]
    chosen = output[rows].reshape(batch, tokens, *output.shape[1:])
    # Three axes are logarithms of sums, which a definition has as (b, h, n).
    return chosen.swapaxes(1, 2) if chosen.ndim == 3 else chosen
