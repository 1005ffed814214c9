"""The probe of decoding: passes that went on from a cache are run again, and compared with one pass of all tokens.

Both runs are in float64 throughout, where a right cache leaves differences of rounding alone, and a state that is
rounded to 16 bits does not hide. A copy of the model runs, so that neither its cache nor its buffers change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from symattn.models.auditing.dependence.in_float64 import copied_in_float64, doubled, lifted
from symattn.models.auditing.dependence.mixing import within
from symattn.models.auditing.dependence.token_rows import Tokens, first, laid_out
from symattn.models.auditing.setting import Args, Kwargs, Module, Tensor
from symattn.programs.refusing import one_line

#: Passes from a cache that are run again.
STEPS = 4
#: A copy in float64 of a larger model takes too much memory.
MAX_PARAMETERS = 2**28
#: Above what stays in float32 where float64 is asked for, and below a rounding to 16 bits.
_DIFFERENT = 2.0**-18
#: How far outputs of the model's own format may be from float64, as a multiple of the root of its rounding unit.
_OWN_ROUNDING = 16.0
_OF_CACHES = ("past_key_values", "cache", "cache_params")
# They are about the result alone.
_LEFT_OUT = (*_OF_CACHES, "labels", "logits_to_keep", "num_logits_to_keep", "use_cache")
#: Arguments with a number for each token, on the last axis.
_BY_TOKEN = ("position_ids", "cache_position", "token_type_ids")
#: Rotations whose rates depend on the number of tokens so far.
_BY_LENGTH = ("dynamic", "longrope")


@dataclass(frozen=True)
class RecordedPass:
    """One pass of a model: its tokens (b, n) or embeddings (b, n, d), its other arguments, and its output, if an array.

    ``key`` is the name of the argument that holds the tokens.
    """

    key: str
    tokens: Tensor
    others: Mapping[str, Any]
    output: Tensor | None

    @property
    def length(self) -> int:
        """How many tokens the pass has."""
        return int(self.tokens.shape[1])


@dataclass
class RecordedDecoding:
    """The passes of a model that share a cache, in their order; ``reason`` says why they cannot be run again.

    ``layers`` are the names of modules with a call that was read in a pass from the cache.
    """

    cache: Any
    passes: list[RecordedPass] = field(default_factory=list)
    reason: str = ""
    layers: set[str] = field(default_factory=set)

    @property
    def length(self) -> int:
        """How many tokens all passes have."""
        return sum(one.length for one in self.passes)


@dataclass(frozen=True)
class DecodingDifference:
    """A module whose output for a token differs from that in one pass of all tokens, though it received the same.

    ``size`` is the difference as a fraction of the largest output, ``received`` says that its inputs are the same, and
    ``moved`` that it receives other positions.
    """

    module: str
    kind: str
    token: int
    size: float
    received: bool
    moved: bool = False

    @property
    def words(self) -> str:
        """The difference in words."""
        same = ", though it receives the same" if self.received else ""
        same = ": it receives other positions" if self.moved else same
        return (
            f"{self.module} ({self.kind}): in decoding from the cache, its output of token {self.token} differs by"
            f" {self.size:.2g} of its largest number from that in one pass of all tokens{same}"
        )


@dataclass(frozen=True)
class Decoding:
    """The finding of a probe: how many passes from a cache were run again, the difference, or why there is none.

    ``layers`` are the names of modules with a call that was read in these passes.
    """

    steps: int
    difference: DecodingDifference | None = None
    reason: str = ""
    layers: frozenset[str] = frozenset()
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
    """Passes of one model, from a first one with an empty cache on."""

    def __init__(self) -> None:
        self._current: RecordedDecoding | None = None

    def add(
        self, root: Module, args: Args, kwargs: Kwargs, out: Any, layers: Iterable[str]
    ) -> RecordedDecoding | None:
        """Record a pass, in which calls of these layers were read; return all of its cache if there are enough."""
        passed = _first_cache(kwargs.get)
        cache = _first_cache(partial(_attribute, out)) if passed is None else passed
        if cache is None:
            return None
        recorded = _record_pass(root, args, kwargs, out)
        current = self._current
        if current is None or current.cache is not cache:
            self._current = None
            held = _cached_tokens(cache)
            is_new = passed is None if held is None else held == getattr(recorded, "length", None)
            if recorded is not None and is_new:
                self._current = RecordedDecoding(cache, [recorded])
                return None
            if passed is None:
                return None
            # Tokens of a cache that was filled before are not known.
            reason = "the earlier tokens of the cache are not known"
            return RecordedDecoding(cache, reason=reason, layers=set(layers))
        current.layers.update(layers)
        if recorded is None:
            current.reason = "its tokens are not the only argument by position"
        else:
            current.passes.append(recorded)
            length = _cached_tokens(cache)
            if length is not None and length != current.length:
                current.reason = "the cache was cut or changed between passes"
        return self.take() if len(current.passes) > STEPS or current.reason else None

    def take(self) -> RecordedDecoding | None:
        """Return the passes so far, if one of them went on from a cache, and forget them."""
        current, self._current = self._current, None
        if current is None or (len(current.passes) < 2 and not current.reason):
            return None
        return current


def _record_pass(root: Module, args: Args, kwargs: Kwargs, out: Any) -> RecordedPass | None:
    layout = laid_out(root, args, kwargs)
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
    result = first(_without_loss(out))
    output = result.detach() if hasattr(result, "detach") else None
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
    kind = type(recorded.cache).__name__
    # The runs have a cache of the model's own.
    if kind != "DynamicCache" and not kind.startswith(type(root).__name__.partition("For")[0]):
        return f"its cache is of the class {kind}"
    text = str(getattr(getattr(root, "config", None), "rope_parameters", None))
    if any(kind in text for kind in _BY_LENGTH):
        return "its rotations depend on the number of tokens so far"
    return ""


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
    by_pass, cache = list[list[_Output]](), None
    for one in passes:
        with_cache = {} if cache is None else {_name_of_cache(wide): cache}
        outputs, out = _run(wide, paths, one, {**with_cache, "use_cache": True})
        cache = _first_cache(partial(_attribute, out))
        by_pass.append(outputs)
        # Otherwise something else than these passes made the cache, such as a search in beams.
        if not _agrees_with_own(one, first(_without_loss(out))):
            reason = "passes that are run again in float64 give other outputs"
            return Decoding(steps, reason=reason)
        if cache is None:
            return Decoding(steps, reason="the model returns no cache")
    whole, _ = _run(wide, paths, joined, {"use_cache": False})
    difference = _find_first_difference(by_pass, whole, passes, _real_tokens(joined))
    return Decoding(steps, difference)


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


def _real_tokens(joined: RecordedPass) -> Tensor:
    """Return which tokens (b, n) are not padding."""
    import torch

    mask = joined.others.get("attention_mask")
    if mask is None:
        return torch.ones(joined.tokens.shape[:2], dtype=torch.bool)
    real: Tensor = mask.cpu() != 0
    return real


def _agrees_with_own(one: RecordedPass, again: Any) -> bool:
    """Return whether a pass gave about what it gives in float64, for its last token."""
    import torch

    if one.output is None or not hasattr(again, "shape") or one.output.ndim != 3:
        return True
    own, wide = one.output[:, -1].double(), again[:, -1]
    if own.shape != wide.shape:
        return False
    eps = max(torch.finfo(one.output.dtype).eps, torch.finfo(torch.float32).eps)
    reach = _OWN_ROUNDING * eps**0.5 * float(wide.abs().max())
    return float((own - wide).abs().max()) <= reach


# -- outputs of modules ------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Output:
    """The output of one module in one pass as (b, n, columns), and what it received.

    ``received`` is the first array of tokens, or None, and ``places`` are integers with one number for each token.
    """

    name: str
    kind: str
    gave: Tensor
    received: Tensor | None
    places: tuple[Tensor, ...]


def _run(
    wide: Module, paths: Mapping[Module, str], one: RecordedPass, more: Mapping[str, Any]
) -> tuple[list[_Output], Any]:
    """Run the copy, and return the outputs of its modules in the order of their ends, and what it returned."""
    seen: list[_Output] = []
    tokens = Tokens(*one.tokens.shape[:2])

    def see(module: Module, args: Args, kwargs: Kwargs, out: Any) -> None:
        gave = tokens.flat(first(out))
        if gave is None:
            return
        arrays = [x for x in (*args, *kwargs.values()) if hasattr(x, "shape")]
        read = map(tokens.flat, arrays)
        received = next((x for x in read if x is not None), None)
        integers = (x for x in arrays if x.ndim and not (x.is_floating_point() or x.is_complex()))
        places = tuple(x for x in integers if x.shape[-1] == tokens.n)
        seen.append(_Output(paths[module], type(module).__name__, gave, received, places))

    arguments = {one.key: one.tokens, **one.others}
    with lifted(), _hooked(paths, see):
        out = wide(**doubled(arguments), **more)
    return seen, out


@contextmanager
def _hooked(modules: Mapping[Module, str], see: Callable[..., None]) -> Iterator[None]:
    handles = [one.register_forward_hook(see, with_kwargs=True) for one in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _find_first_difference(
    by_pass: Sequence[Sequence[_Output]],
    whole: Sequence[_Output],
    passes: Sequence[RecordedPass],
    real: Tensor,
) -> DecodingDifference | None:
    """Return the first module whose output differs in a pass from a cache; one that receives the same comes first."""
    turns = _by_name_and_turn(whole)
    start = passes[0].length
    for one, outputs in zip(passes[1:], by_pass[1:], strict=True):
        differences = list[DecodingDifference]()
        for (name, turn), output in _by_name_and_turn(outputs).items():
            # A module that runs more often with more tokens, such as an expert, has no counterpart.
            if (name, turn) not in turns:
                continue
            right = turns[name, turn]
            rows = real[:, start : start + one.length]
            sizes = _relative_differences(output.gave, right.gave, start, rows)
            if sizes is None or float(sizes.max()) <= _DIFFERENT:
                continue
            token = start + int(sizes.max(0).values.argmax())
            moved = _receives_other_places(output, right, start)
            received = not moved and _receives_same(output, right, start, rows)
            size = float(sizes.max())
            difference = DecodingDifference(name, output.kind, token, size, received, moved)
            differences.append(difference)
            if received or moved:
                return difference
        if differences:
            return _innermost_first(differences)
        start += one.length
    return None


def _innermost_first(differences: Sequence[DecodingDifference]) -> DecodingDifference:
    """Return the first difference, in a module that holds none of the others."""
    for one in differences:
        inner = (other for other in differences if other.module != one.module)
        if not any(within(other.module, one.module) for other in inner):
            return one
    return differences[0]


def _receives_same(one: _Output, right: _Output, start: int, rows: Tensor) -> bool:
    """Return whether a module received the same array for these tokens in both runs."""
    if one.received is None or right.received is None:
        return False
    sizes = _relative_differences(one.received, right.received, start, rows)
    return sizes is not None and float(sizes.max()) <= _DIFFERENT


def _receives_other_places(one: _Output, right: _Output, start: int) -> bool:
    """Return whether a module received other positions, or other integers, for these tokens."""
    for step, whole in zip(one.places, right.places, strict=False):
        part = whole[..., start : start + step.shape[-1]]
        if part.shape == step.shape and bool((part != step).any()):
            return True
    return False


def _by_name_and_turn(outputs: Sequence[_Output]) -> dict[tuple[str, int], _Output]:
    """Return outputs by the name of their module, and by how many times it ran before."""
    result: dict[tuple[str, int], _Output] = {}
    counts: dict[str, int] = {}
    for one in outputs:
        turn = counts.get(one.name, 0)
        counts[one.name] = turn + 1
        result[one.name, turn] = one
    return result


def _relative_differences(step: Tensor, whole: Tensor, start: int, rows: Tensor) -> Tensor | None:
    """Return how far each token (b, n) of a pass differs from the same in all; None if the shapes do not fit."""
    part = whole[:, start : start + step.shape[1]]
    if part.shape != step.shape or not part.numel():
        return None
    size = float(whole.nan_to_num(0.0, 0.0, 0.0).abs().max())
    differences = (step - part).nan_to_num(0.0, 0.0, 0.0).abs().amax(-1).cpu() / (size or 1.0)
    return differences.masked_fill(~rows, 0.0)
