"""The probe of decoding: passes that went on from a cache are run again, and compared with one pass of all tokens.

Both runs are in float64 throughout, where a right cache leaves differences of rounding alone, and a state that is
rounded to 16 bits does not hide. A copy of the model runs, so that neither its cache nor its buffers change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from typing import Any
from weakref import ref

from symattn.models.auditing.dependence import token_rows
from symattn.models.auditing.dependence.in_float64 import copied_in_float64
from symattn.models.auditing.dependence.mixing import within
from symattn.models.auditing.dependence.pass_outputs import (
    ModuleOutputs,
    PassDifference,
    RecordedPass,
    explain_too_many_outputs,
    find_first_difference,
    run_with_outputs,
)
from symattn.models.auditing.setting import Args, Kwargs, Module, Tensor
from symattn.programs.refusing import one_line

#: Passes from a cache that are run again.
STEPS = 4
#: A copy in float64 of a larger model takes too much memory.
MAX_PARAMETERS = 2**28
#: How far outputs of the model's own format may be from float64, as a multiple of the root of its rounding unit.
_OWN_ROUNDING = 16.0
_OF_CACHES = ("past_key_values", "cache", "cache_params")
# They are about the result alone.
_LEFT_OUT = (*_OF_CACHES, "labels", "logits_to_keep", "num_logits_to_keep", "use_cache")
#: Arguments with a number for each token, on the last axis.
_BY_TOKEN = ("position_ids", "cache_position", "token_type_ids")
_BY_COUNT = "its outputs depend on how many tokens a pass has, as choices between equal scores may"
#: Rotations whose rates depend on the number of tokens so far.
_BY_LENGTH = ("dynamic", "longrope")


@dataclass
class RecordedDecoding:
    """The passes of a model that share a cache, in their order; ``reason`` says why they cannot be run again.

    ``find_cache`` returns the cache, or None once nothing else holds it, and ``kind`` is the name of its class.
    ``layers`` are the names of modules with a call that was read in a pass from the cache.
    """

    find_cache: Callable[[], Any]
    kind: str
    passes: list[RecordedPass] = field(default_factory=list)
    reason: str = ""
    layers: set[str] = field(default_factory=set)

    @property
    def length(self) -> int:
        """How many tokens all passes have."""
        return sum(one.length for one in self.passes)


@dataclass(frozen=True)
class Decoding:
    """The finding of a probe: how many passes from a cache were run again, the difference, or why there is none.

    ``layers`` are the names of modules with a call that was read in these passes, ``model`` is the number of the model.
    """

    steps: int
    difference: PassDifference | None = None
    reason: str = ""
    layers: frozenset[str] = frozenset()
    model: int = 0
    RECORD = "steps, difference, reason"

    @property
    def coverage(self) -> str:
        """Return how many passes were compared, or why none was; "" if a difference says more."""
        passes = "1 pass" if self.steps == 1 else f"{self.steps} passes"
        if self.reason:
            return f"{passes} from a cache not compared with one pass of all tokens: {self.reason}"
        agrees = "agrees" if self.steps == 1 else "agree"
        return "" if self.difference else f"{passes} from a cache {agrees} with one of all tokens"

    def is_read(self, part: str) -> bool:
        """Return whether a part of the model was compared, or a call in it was read, in these passes."""
        return not self.reason or any(within(layer, part) for layer in self.layers)

    @property
    def faults(self) -> list[str]:
        """Return the difference in words, if there is one."""
        return [] if self.difference is None else [self.difference.words]


class DecodingRecorder:
    """Passes of one model, from a first one with an empty cache on.

    ``root`` is the model while passes from a cache wait for others, else None, so that it may be freed.
    """

    def __init__(self) -> None:
        self.root: Module | None = None
        self._current: RecordedDecoding | None = None

    def add(
        self, root: Module, args: Args, kwargs: Kwargs, out: Any, layers: Iterable[str]
    ) -> RecordedDecoding | None:
        """Record a pass, in which calls of these layers were read; return all of its cache if there are enough."""
        passed = _first_cache(kwargs.get)
        cache = _first_cache(partial(_attribute, out)) if passed is None else passed
        if cache is None:
            return None
        recorded = record_pass(root, args, kwargs, out)
        current = self._current
        if current is None or current.find_cache() is not cache:
            self._current = self.root = None
            stored = _cached_tokens(cache)
            is_new = (
                passed is None if stored is None else stored == getattr(recorded, "length", None)
            )
            if recorded is not None and is_new:
                self._current = _begin_decoding(cache)
                self._current.passes.append(recorded)
                return None
            if passed is None:
                return None
            # Nothing says which tokens filled a cache before.
            reason = "the earlier tokens of the cache are unknown"
            return replace(_begin_decoding(cache), reason=reason, layers=set(layers))
        current.layers.update(layers)
        if recorded is None:
            current.reason = "its tokens are not the only argument by position"
        else:
            current.passes.append(recorded)
            length = _cached_tokens(cache)
            if length is not None and length != current.length:
                current.reason = "the cache was cut or changed between passes"
        # A model that cannot be run again need not wait for further passes.
        current.reason = current.reason or _explain_no_probe(root, current)
        self.root = root
        return self.take() if len(current.passes) > STEPS or current.reason else None

    def take(self) -> RecordedDecoding | None:
        """Return the passes so far, if one of them went on from a cache, and forget them."""
        current = self._current
        self._current = self.root = None
        if current is None or (len(current.passes) < 2 and not current.reason):
            return None
        return current


def _begin_decoding(cache: Any) -> RecordedDecoding:
    try:
        find_cache: Callable[[], Any] = ref(cache)
    # A tuple has no weak references.
    except TypeError:
        find_cache = partial(_same, cache)
    return RecordedDecoding(find_cache, type(cache).__name__)


def _same(x: Any) -> Any:
    return x


def record_pass(root: Module, args: Args, kwargs: Kwargs, out: Any) -> RecordedPass | None:
    """Return a pass of a model to run it again; None if its tokens are not its only argument by position."""
    layout = token_rows.laid_out(root, args, kwargs)
    if layout is None:
        return None
    tokens, key = layout
    if tokens.seq_first:
        return None
    # By position only the tokens are known.
    if isinstance(key, int):
        if len(args) > 1:
            return None
        array = args[0]
        key = "inputs_embeds" if array.is_floating_point() else "input_ids"
    else:
        if args:
            return None
        array = kwargs[key]
    others = {k: x for k, x in kwargs.items() if k != key and k not in _LEFT_OUT and x is not None}
    others = {k: x.detach().clone() if hasattr(x, "detach") else x for k, x in others.items()}
    result = token_rows.first(_without_loss(out))
    # A copy, as a part would keep all logits of a long pass.
    is_by_token = hasattr(result, "detach") and result.ndim == 3
    output = result[:, -1:].detach().clone() if is_by_token else None
    return RecordedPass(key, array.detach().clone(), others, output)


def _without_loss(out: Any) -> Any:
    """Return what a model returned; a loss comes first, if there is one."""
    if isinstance(out, Mapping):
        return {k: x for k, x in out.items() if k != "loss"}
    return out


def _first_cache(find: Callable[[str], Any]) -> Any:
    return next((cache for cache in map(find, _OF_CACHES) if cache is not None), None)


def _attribute(out: Any, name: str) -> Any:
    return getattr(out, name, None)


def _cached_tokens(cache: Any) -> int | None:
    """Return how many tokens a cache holds; None if it does not say."""
    length = getattr(cache, "get_seq_length", None)
    if length is None:
        return None
    # A cache without any layer of attention has no length to say.
    try:
        return int(length())
    except (ValueError, IndexError, TypeError):
        return None


# -- running again -----------------------------------------------------------------------------------------------------
def probe_decoding(
    root: Module, names: Mapping[Module, str], recorded: RecordedDecoding
) -> Decoding:
    """Return whether passes from a cache agree with one pass of all tokens, in float64."""
    import torch

    steps = max(1, len(recorded.passes) - 1)
    layers = frozenset(recorded.layers)
    if reason := recorded.reason or _explain_no_probe(root, recorded):
        return Decoding(steps, reason=reason, layers=layers)
    try:
        with torch.no_grad(), torch.random.fork_rng():
            finding = _compare_runs(root, names, recorded.passes)
    # The code of a model may raise anything when it runs again.
    except Exception as error:
        finding = Decoding(steps, reason=f"a repeated pass raised {one_line(error)[:200]}")
    return replace(finding, layers=layers)


def _explain_no_probe(root: Module, recorded: RecordedDecoding) -> str:
    """Return why passes cannot be run again in float64; "" if they can."""
    if root.training:
        return "the model is in training"
    if sum(p.numel() for p in root.parameters()) > MAX_PARAMETERS:
        return (
            f"the model has more than {MAX_PARAMETERS} parameters, too many for a copy in float64"
        )
    if getattr(getattr(root, "config", None), "is_encoder_decoder", False):
        return "the model has an encoder"
    kind = recorded.kind
    # The runs have a cache of the model's own.
    if kind != "DynamicCache" and not kind.startswith(type(root).__name__.partition("For")[0]):
        return f"its cache is of the class {kind}"
    # That of a language model stands within one of several parts.
    configs = [getattr(part, "config", None) for part in root.modules()]
    text = " ".join({str(getattr(config, "rope_parameters", None)) for config in configs})
    if any(kind in text for kind in _BY_LENGTH):
        return "its rotations depend on the number of tokens so far"
    tokens = sum(one.tokens.shape[:2].numel() for one in recorded.passes)
    return explain_too_many_outputs(root, tokens)


def _compare_runs(
    root: Module, names: Mapping[Module, str], passes: Sequence[RecordedPass]
) -> Decoding:
    wide = copied_in_float64(root)
    copies = zip(root.modules(), wide.modules(), strict=True)
    paths = {wide_one: names[one] for one, wide_one in copies if one in names}
    steps = len(passes) - 1
    joined = _join(passes)
    if isinstance(joined, str):
        return Decoding(steps, reason=joined)
    by_pass, cache = list[list[ModuleOutputs]](), None
    for one in passes:
        with_cache: dict[str, Any] = {} if cache is None else {_name_of_cache(wide): cache}
        outputs, out = run_with_outputs(wide, paths, one, {**with_cache, "use_cache": True})
        cache = _first_cache(partial(_attribute, out))
        by_pass.append(outputs)
        # Otherwise something else than these passes made the cache, such as a search in beams.
        if not _agrees_with_own(one, token_rows.first(_without_loss(out))):
            reason = "passes that are run again in float64 give other outputs"
            return Decoding(steps, reason=reason)
        if cache is None:
            return Decoding(steps, reason="the model returns no cache")
    whole, _ = run_with_outputs(wide, paths, joined, {"use_cache": False})
    starts = accumulate((one.length for one in passes), initial=0)
    runs = list(zip(starts, by_pass, strict=False))
    real = real_tokens(joined)
    difference = find_first_difference(runs[1:], whole, real)
    if difference is None:
        return Decoding(steps)
    # Choices between equal scores may depend on how many tokens there are, without any cache.
    shorter = [passes[0].length, next(end for end in _ends(passes) if end > difference.token)]
    for length in shorter:
        fewer, _ = run_with_outputs(wide, paths, _cut(joined, length), {"use_cache": False})
        if find_first_difference([(0, fewer)], whole, real) is not None:
            return Decoding(steps, reason=_BY_COUNT)
    return Decoding(steps, difference)


def _ends(passes: Sequence[RecordedPass]) -> Iterable[int]:
    return accumulate(one.length for one in passes)


def _cut(joined: RecordedPass, length: int) -> RecordedPass:
    """Return the first tokens of a pass, with their masks and positions."""
    others = {
        name: x[..., :length] if hasattr(x, "shape") else x for name, x in joined.others.items()
    }
    return RecordedPass(joined.key, joined.tokens[:, :length], others, None)


def _join(passes: Sequence[RecordedPass]) -> RecordedPass | str:
    """Return all passes as one, or why they cannot be joined."""
    import torch

    others: dict[str, Any] = dict(passes[-1].others)
    total = sum(one.length for one in passes)
    for name, last in passes[-1].others.items():
        if not hasattr(last, "shape"):
            continue
        if "mask" in name and last.ndim == 2:
            # The last mask is that of all tokens.
            if last.shape[1] != total:
                return f"its {name} is not one of all tokens"
            continue
        arrays = [one.others.get(name) for one in passes]
        is_by_token = name in _BY_TOKEN and all(array is not None for array in arrays)
        if not is_by_token:
            return f"its argument {name} is not one of tokens"
        others[name] = torch.cat(arrays, dim=-1)
    if any(set(one.others) != set(passes[-1].others) for one in passes):
        return "its passes have different arguments"
    if len({one.key for one in passes}) > 1:
        return "its passes hold their tokens in different arguments"
    tokens = torch.cat([one.tokens for one in passes], dim=1)
    return RecordedPass(passes[0].key, tokens, others, None)


def _name_of_cache(root: Module) -> str:
    import inspect

    names = inspect.signature(root.forward).parameters
    return next((name for name in _OF_CACHES if name in names), _OF_CACHES[0])


def real_tokens(joined: RecordedPass) -> Tensor:
    """Return which tokens (b, n) are not padding."""
    import torch

    mask = joined.others.get("attention_mask")
    # A mask of pairs of tokens says nothing of padding.
    if mask is None or getattr(mask, "ndim", 0) != 2:
        return torch.ones(joined.tokens.shape[:2], dtype=torch.bool, device="cpu")
    real: Tensor = mask.cpu() != 0
    return real


def _agrees_with_own(one: RecordedPass, again: Any) -> bool:
    """Return whether a pass gave about what it gives in float64, for its last token."""
    import torch

    if one.output is None or not hasattr(again, "shape"):
        return True
    own, wide = one.output[:, -1].double(), again[:, -1]
    if own.shape != wide.shape:
        return False
    eps = max(torch.finfo(one.output.dtype).eps, torch.finfo(torch.float32).eps)
    reach = _OWN_ROUNDING * eps**0.5 * float(wide.abs().max())
    return bool((own - wide).abs().max() <= reach)
