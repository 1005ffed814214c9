"""The probe of dependence: a pass is run again with one token changed, and the bits of all outputs are compared.

Two passes of the whole model find the first module in which an output changes with a later token. Each part is also run
on its own input with one token changed, so that what it mixes is seen apart from what earlier parts mixed. Products
over other numbers of tokens, as of experts, and Fourier transforms change earlier outputs by rounding alone: where
a change is small, the module is run again in float64.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from symattn.models.auditing import promises
from symattn.models.auditing.dependence import token_rows
from symattn.models.auditing.dependence.in_float64 import doubled, really_changes
from symattn.models.auditing.dependence.mixing import (
    ALL_EARLIER,
    AS_PROMISED,
    LATER_TOO,
    SOME_EARLIER,
    Dependence,
    Leak,
    MixingPart,
    within,
)
from symattn.models.auditing.setting import Args, Kwargs, Module, Tensor
from symattn.programs.refusing import one_line

_NO_PROMISE = "no configuration says whether the model is causal; hint: audit(model, causal=True)"


#: Caches are left out, so that a pass can be repeated, and labels, whose loss is not looked at.
_LEFT_OUT = ("past_key_values", "cache", "cache_params", "labels")
_UNSTEADY = (
    "a repeated pass gives other numbers, so that no change can be distinguished from chance"
)
_ROUNDING_UNKNOWN = (
    "whether later tokens matter is undecided: changes are small, and it does not run in float64"
)


class Unsteady(Exception):
    """Raised if a module gives other numbers for the same input."""


@dataclass
class Running:
    """A module in its forward pass: its name, and the parts below it that mix tokens, with what they returned."""

    module: Module
    name: str
    mixing: list[tuple[Module, Any]] = field(default_factory=list)
    drawn: Tensor | None = None  # the state of torch's generator when it began, in training


class HeldOutputs:
    """Earlier outputs of parts, in order: the parts return them again while the code around them runs again.

    Where tokens are changed, it is changed as well, so that what mixes the outputs of a part is seen, too.
    """

    def __init__(self, tokens: token_rows.Tokens, returned: list[tuple[Module, Any]]) -> None:
        self.tokens, self.returned = tokens, returned
        self._left: dict[Module, list[Any]] = {}

    def begin(
        self, changed: tuple[int, ...], copies: Mapping[Module, Module] | None = None
    ) -> None:
        """Begin another run; ``copies`` are modules in float64 that run in place of others."""
        self._left = {}
        for module, out in self.returned:
            changed_output = self._change_output_tokens(out, changed)
            # Copies in float64 return outputs in float64, in place of the modules that they copy.
            own, value = (
                (module, changed_output)
                if copies is None
                else (copies[module], doubled(changed_output))
            )
            self._left.setdefault(own, []).append(value)

    def _change_output_tokens(self, out: Any, changed: tuple[int, ...]) -> Any:
        array = token_rows.first(out)
        # An output without an axis of tokens has no token to change.
        if not changed or self.tokens.placed(array) is None:
            return out
        new = self.tokens.changed(array, changed)
        return (new, *out[1:]) if type(out) is tuple else new if array is out else out

    def next(self, module: Module) -> Any:
        """Return what a module returned at this turn; None if it is free to run."""
        # A module that runs several times returns its outputs in their order.
        left = self._left.get(module)
        return left.pop(0) if left else None


@dataclass(frozen=True)
class ChangedToken:
    """A token of an item of the batch that is changed, and the outputs (b, n) that must not change with it.

    ``padding`` says that the token is none of the sequence, so that no output may depend on it.
    """

    item: int
    token: int
    forbidden: Tensor
    padding: bool = False


@dataclass
class ModuleOutput:
    """The output of one module in one pass, as digests of its tokens (b, n); ``is_lookup``: it is an embedding."""

    name: str
    digest: Tensor
    is_lookup: bool = False


class Probe:
    """One probed pass of a model; ``calls`` are the names of modules with a call of attention."""

    def __init__(
        self,
        root: Module,
        names: Mapping[Module, str],
        calls: set[str],
        causal: bool | None,
        tokens: token_rows.Tokens,
        real: Tensor,
    ) -> None:
        self.root, self.names, self.calls, self.causal, self.tokens = (
            root,
            names,
            calls,
            causal,
            tokens,
        )
        self.real = real  # (b, n): tokens rather than padding
        self.places = [int(t) for t in real[0].nonzero()[:, 0]]
        self.part_findings: dict[str, MixingPart] = {}
        self._stack: list[Running] = []
        self.held_outputs: HeldOutputs | None = None  # while a part is run again
        self._around = self._modules_around_layers()

    def _modules_around_layers(self) -> set[Module]:
        """Return layers, what contains them, and what calls attention: parts are looked for among their children."""
        layers = [
            name for name, _ in self.root.named_modules() if name.rpartition(".")[2].isdigit()
        ]
        # A list within a layer, such as one of experts, belongs to that layer.
        outer = [name for name in layers if not any(name != o and within(name, o) for o in layers)]
        result = {self.root}
        for path, module in self.root.named_modules():
            below = any(within(name, path) for name in outer)
            calls = any(within(name, self.names.get(module, "")) for name in self.calls)
            if below or calls:
                result.add(module)
        return result

    # -- parts, each on its own input ----------------------------------------------------------------------------------
    def entered(self, module: Module) -> None:
        """Note that a module begins."""
        import torch

        # Runs that repeat a part are no passes of the model.
        if self.held_outputs is None:
            drawn = torch.get_rng_state() if module.training else None
            self._stack.append(
                Running(module, self.names.get(module, type(module).__name__), drawn=drawn)
            )

    def left(self, module: Module, args: Args, kwargs: Kwargs, out: Any) -> Any:
        """Probe a part that has run; during its repeated runs, return what parts within it gave before."""
        if self.held_outputs is not None:
            return self.held_outputs.next(module)
        # An exception may have left modules on the stack that never ended.
        while self._stack and self._stack.pop().module is not module:
            pass
        return None

    def part(self, module: Module, args: Args, kwargs: Kwargs, out: Any) -> None:
        """Probe a module if it is a part: one that runs directly in a layer, or the like, or that layer itself."""
        running = self._stack[-1]
        outer = self._stack[-2].module if len(self._stack) > 1 else None
        around = module in self._around
        if out is None or not (around or outer in self._around) or _never_mixes(module):
            return
        # Inner parts return their recorded outputs, so that only the code around them is probed.
        self.held_outputs = HeldOutputs(self.tokens, running.mixing if around else [])
        try:
            finding = self._find_mixing_part(running, args, kwargs, out)
        finally:
            self.held_outputs = None
        if finding is not None:
            self.part_findings.setdefault(running.name, finding)
        if finding is not None or running.mixing:
            # For outer modules this part stands in place of the parts within it. All of them hold the same entries,
            # which are compared by identity: equality of arrays is no truth value.
            inside = set(map(id, running.mixing))
            own = (module, out)
            for each in self._stack[:-1]:
                each.mixing = [entry for entry in each.mixing if id(entry) not in inside]
                each.mixing.append(own)

    def _find_mixing_part(
        self, running: Running, args: Args, kwargs: Kwargs, out: Any
    ) -> MixingPart | None:
        base = self.tokens.flat(token_rows.first(out))
        if base is None:
            return None
        name, kind = running.name, type(running.module).__name__
        run = _Repeated(self, running, args, kwargs, base)
        middle = self._choose_middle_tokens()
        ends = self.places[0], self.places[-1]
        if not run.others((ends[0], middle[1], ends[1])).any():  # the first token ends no block
            return None
        # No token is changed, so that any difference is chance, such as dropout.
        if run.others(()).any():
            return MixingPart(name, kind, SOME_EARLIER, reason=_UNSTEADY)
        # The ends and two neighbours in the middle: blocks and windows show at one of them.
        sampled_tokens = (ends[0], *middle, ends[1])
        probed = {token: run.really(token) for token in sampled_tokens}
        if not any(bool(rows.any()) for rows in probed.values()):
            return (
                MixingPart(name, kind, SOME_EARLIER, reason=_ROUNDING_UNKNOWN)
                if run.undecided
                else None
            )
        leak = next(
            filter(None, (self._find_first_leak(name, t, rows) for t, rows in probed.items())), None
        )
        later = leak is not None and not leak.item
        # Only a causal model promises that later tokens do not matter.
        allowed = later and self.causal is not True
        sees, reach = (LATER_TOO, None) if later else self._describe_reach_of_tokens(probed)
        reason = _ROUNDING_UNKNOWN if run.undecided and leak is None else ""
        if allowed:
            reason = _NO_PROMISE if self.causal is None else AS_PROMISED
        return MixingPart(name, kind, sees, None if allowed else leak, reason=reason, reach=reach)

    def _choose_middle_tokens(self) -> tuple[int, int]:
        """Return two neighbouring tokens in the middle: one of them may be the last of a block."""
        half = len(self.places) // 2
        return self.places[half - 1], self.places[half]

    def _describe_reach_of_tokens(self, changed: Mapping[int, Tensor]) -> tuple[str, int | None]:
        """Return which earlier tokens an output depends on, by the outputs (b, n) that each token changes.

        In words, and the number of tokens of a window, None if there is none.
        """
        widths: set[int | None] = set()
        for token, rows in changed.items():
            after = rows[0, [t for t in self.places if t > token]]
            if not len(after):
                continue
            count = int(after.sum())
            # The changed outputs do not follow the token directly, so that the reach is no window.
            if not bool(after[:count].all()):
                return SOME_EARLIER, None
            widths.add(None if count == len(after) else count + 1)
        if widths == {None}:
            return ALL_EARLIER, None
        known = {width for width in widths if width is not None}
        widest = max(known)
        words = f"{widest} tokens"
        return words if widths == known and len(known) == 1 else f"up to {words}", widest

    def _find_first_leak(self, name: str, token: int, rows: Tensor) -> Leak | None:
        """Return the first output (b, n) that should not have changed with a token of the first item."""
        # A token of another item must not matter, whatever its place.
        if rows[1:].any():
            return Leak(name, int(rows[1:].nonzero()[0][1]), token, item=True)
        earlier = rows[0, :token].nonzero()
        return Leak(name, int(earlier[0]), token) if len(earlier) else None

    # -- the whole model -----------------------------------------------------------------------------------------------
    def first_changed(
        self,
        run: Callable[[ChangedToken | None, Callable[..., Any]], None],
        only_padding: bool = False,
    ) -> Iterator[Leak]:
        """Yield, for two tokens and one of padding, the first module in which a forbidden output changes.

        Rounding does not count. ``run`` runs the model with a token of its input changed, or with none, and calls its
        second argument for each module that has run. With ``only_padding``, no other token is changed.
        """
        base = self._collect_module_outputs(run, None)
        tokens = () if only_padding else self._yield_changed_tokens()
        for changed in (*tokens, *self._yield_changed_padding()):
            outputs = self._collect_module_outputs(run, changed)
            place = _first_place(base, outputs, changed.forbidden)
            if place is None:
                continue
            # A lookup mixes nothing: its indices are places, which RoBERTa counts by the ids of padding.
            if changed.padding and base[place].is_lookup:
                continue
            # What is computed from padding may be hidden later; the model's own output, the last one, must show it.
            if changed.padding and not _differ(base[-1], outputs[-1], self.real):
                continue
            # A repeated pass without a change: if it differs as well, the difference is chance.
            again = self._collect_module_outputs(run, None)
            if _first_place(base, again, self.real) is not None:
                raise Unsteady
            rows = self._confirm_changed_outputs(run, place, changed)
            if rows is not None:
                yield self._make_leak(base[place].name, changed, rows)

    def _yield_changed_tokens(self) -> Iterator[ChangedToken]:
        for token in self._choose_middle_tokens():
            yield ChangedToken(0, token, self._mask_forbidden_outputs(token))

    def _yield_changed_padding(self) -> Iterator[ChangedToken]:
        padding = (~self.real).nonzero().tolist()
        if not padding:
            return
        # Before a token of the sequence, where even a convolution of two tokens would read it.
        before = [
            [item, token] for item, token in padding if self.real[item, token + 1 : token + 2].any()
        ]
        item, token = (before or padding)[-1]
        yield ChangedToken(item, token, self.real, padding=True)

    def _make_leak(self, name: str, changed: ChangedToken, rows: Tensor) -> Leak:
        """Return the first of the outputs (b, n) that changed, as a leak; those of the same item come first."""
        own = rows[changed.item].nonzero()
        if changed.padding and len(own):
            return Leak(name, int(own[0]), changed.token, padding=True)
        leak = self._find_first_leak(name, changed.token, rows.roll(-changed.item, 0))
        assert leak is not None
        return leak

    def _collect_module_outputs(
        self, run: Callable[..., None], changed: ChangedToken | None
    ) -> list[ModuleOutput]:
        import torch

        result: list[ModuleOutput] = []

        def see(module: Module, args: Args, kwargs: Kwargs, out: Any) -> None:
            # Outputs without an axis of tokens say nothing about them.
            flat = self.tokens.flat(token_rows.first(out))
            # A module without a path is none of the model's: the next one around it shows the same.
            if flat is not None and module in self.names:
                is_lookup = type(module).forward is torch.nn.Embedding.forward
                result.append(ModuleOutput(self.names[module], token_rows.digests(flat), is_lookup))

        run(changed, see)
        return result

    def _mask_forbidden_outputs(self, token: int) -> Tensor:
        """Return which outputs (b, n) must not change with a token of the first item."""
        import torch

        rows = torch.ones(self.tokens.b, self.tokens.n, dtype=torch.bool)
        # Without a causal promise all tokens of an item may matter to it, but no other item's.
        rows[0, token if self.causal else 0 :] = False
        return rows & self.real

    def _confirm_changed_outputs(
        self, run: Callable[..., None], place: int, changed: ChangedToken
    ) -> Tensor | None:
        """Return in which outputs (b, n) of the module at a place a change is none of rounding; None if it may be one.

        That is decided for the innermost module around it whose inputs did not change in these tokens.
        """
        base, other = (_Around(self, place) for _ in range(2))
        run(None, base.see)
        run(changed, other.see)
        # Experts may run in another order, so that only modules around the place run in both passes.
        again = {id(one.module): one for one in other.passes}
        pairs = [(one, again[id(one.module)]) for one in base.passes if id(one.module) in again]
        pairs = [(a, b) for a, b in pairs if a.flat.shape == b.flat.shape]
        if not pairs:
            return None
        forbidden = changed.forbidden
        first_base, first_other = (one.flat for one in pairs[0])
        rows = token_rows.differing(first_other, first_base).cpu() & forbidden
        for a, b in pairs:
            differs = token_rows.differing(b.flat, a.flat).cpu() & forbidden
            if not differs.any():
                return None
            if self._same_inputs(a, b, forbidden):
                inputs = (a.args, a.kwargs), (b.args, b.kwargs)
                flat = a.flat, b.flat
                real = is_real(a.module, self.tokens, inputs, changed.token, *flat, differs)
                return rows if real else None
        # No module has unchanged inputs: only a coarse change is certainly none of rounding.
        size = token_rows.change(first_other, first_base, rows)
        return rows if size > coarse(first_base) else None

    def _same_inputs(self, a: ModulePass, b: ModulePass, rows: Tensor) -> bool:
        """Return whether both passes gave a module the same numbers for these tokens; some array holds tokens."""
        pairs = list(zip(a.arrays(), b.arrays(), strict=True))
        flat = [(self.tokens.flat(x), self.tokens.flat(y)) for x, y in pairs]
        read = [(x, y) for x, y in flat if x is not None and y is not None]
        known = [(x, y) for x, y in read if x.shape == y.shape]
        changed_rows = (token_rows.differing(x, y).cpu() & rows for x, y in known)
        return bool(known) and not any(changed.any() for changed in changed_rows)


def _first_place(base: list[ModuleOutput], other: list[ModuleOutput], rows: Tensor) -> int | None:
    """Return the place of the first module in which one of these outputs (b, n) differs; None without one."""
    for place, (a, b) in enumerate(zip(base, other, strict=False)):
        if _differ(a, b, rows):
            return place
    return None


def _differ(a: ModuleOutput, b: ModuleOutput, rows: Tensor) -> bool:
    """Return whether one of these outputs (b, n) differs. Modules in another order are a change as well."""
    return a.name != b.name or bool(((a.digest != b.digest).cpu() & rows).any())


@dataclass
class ModulePass:
    """One pass of a module: its arguments, and its output as (b, n, columns)."""

    module: Module
    args: Args
    kwargs: Kwargs
    flat: Tensor

    def arrays(self) -> list[Any]:
        """Return the arguments."""
        return [*self.args, *self.kwargs.values()]


class _Around:
    """The passes of the module at a place in the order of a run, and of the modules around it."""

    def __init__(self, probe: Probe, place: int) -> None:
        self.probe, self.left, self.passes, self.names = (
            probe,
            place,
            list[ModulePass](),
            set[str](),
        )

    def see(self, module: Module, args: Args, kwargs: Kwargs, out: Any) -> None:
        """Keep the pass of a module if it is the one at the place, or the next one around it."""
        flat = self.probe.tokens.flat(token_rows.first(out))
        if flat is None or module not in self.probe.names:
            return
        name = self.probe.names[module]
        # The place itself, or a module around those seen so far.
        if self.left == 0 or (
            self.left < 0 and within(min(self.names, key=len), name) and name not in self.names
        ):
            self.passes.append(ModulePass(module, args, kwargs, flat.detach().clone()))
            self.names.add(name)
        self.left -= 1


class _Repeated:
    """A part that is run again, on its own input with tokens changed."""

    def __init__(
        self, probe: Probe, running: Running, args: Args, kwargs: Kwargs, base: Tensor
    ) -> None:
        self.tokens, self.real = probe.tokens, probe.real
        self.base, self.held_outputs = base, probe.held_outputs
        self.module, self.drawn, self.args, self.kwargs = (
            running.module,
            running.drawn,
            args,
            kwargs,
        )
        self.undecided = False

    def _run_part_with_change(self, changed: tuple[int, ...]) -> Tensor | None:
        import torch

        new_arguments = self.tokens.arguments(self.args, self.kwargs, changed)
        if new_arguments is None:
            return None
        args, kwargs = new_arguments
        assert self.held_outputs is not None
        self.held_outputs.begin(changed)
        # Dropout must draw the numbers of the first run.
        if self.drawn is not None:
            torch.set_rng_state(self.drawn)
        return self.tokens.flat(token_rows.first(self.module(*args, **kwargs)))

    def others(self, changed: tuple[int, ...], out: Tensor | None = None) -> Tensor:
        """Return which outputs (b, n) of tokens other than the changed ones differ."""
        import torch

        out = self._run_part_with_change(changed) if out is None else out
        # Arrays of different shapes cannot be compared, so that no difference is claimed.
        if out is None or out.shape != self.base.shape:
            return torch.zeros(self.tokens.b, self.tokens.n, dtype=torch.bool)
        rows = token_rows.differing(out, self.base).cpu()
        rows[0, list(changed)] = False
        return rows & self.real

    def really(self, token: int) -> Tensor:
        """Return which outputs of other tokens differ beyond rounding: all or none of the earlier, and of the later."""
        out = self._run_part_with_change((token,))
        rows = self.others((token,), out)
        if not rows.any() or out is None:
            return rows
        earlier = rows.clone()
        earlier[0, token:] = False
        inputs = [
            self.tokens.arguments(self.args, self.kwargs, tokens) for tokens in ((), (token,))
        ]
        # Earlier and later tokens are judged apart, since one change may be rounding alone.
        for group in (earlier, rows & ~earlier):
            if not group.any():
                continue
            real = is_real(
                self.module, self.tokens, inputs, token, self.base, out, group, self.held_outputs
            )
            self.undecided |= real is None
            rows = rows if real else rows & ~group
        return rows


def is_real(
    module: Module,
    tokens: token_rows.Tokens,
    inputs: Any,
    token: int,
    base: Tensor,
    out: Tensor,
    rows: Tensor,
    held_outputs: HeldOutputs | None = None,
) -> bool | None:
    """Return whether these outputs (b, n) differ beyond rounding between two inputs; None if that is unknown.

    A change above the root of the format's rounding unit is none of rounding; a smaller one must be there in float64.
    """
    if token_rows.change(out, base, rows) > coarse(base):
        return True
    return really_changes(module, tokens, inputs, token, rows, held_outputs)


def coarse(x: Tensor) -> float:
    """Return the root of the rounding unit of a format, of float32 in float64: much code computes in float32 there."""
    import torch

    largest_eps = max(torch.finfo(x.dtype).eps, torch.finfo(torch.float32).eps)
    return float(largest_eps**0.5)


def _never_mixes(module: Module) -> bool:
    """Return whether a module works on each token by torch's own code."""
    import torch

    known = (
        torch.nn.Linear,
        torch.nn.Embedding,
        torch.nn.Dropout,
        torch.nn.Identity,
        torch.nn.LayerNorm,
    )
    # The code that runs decides: a subclass with its own ``forward`` may mix tokens.
    return any(type(module).forward is kind.forward for kind in known)


# -- one probed pass ---------------------------------------------------------------------------------------------------
class RepeatedPass(NamedTuple):
    """A pass of a model that is to run again with other tokens.

    ``key`` is the argument that holds the ``tokens``; ``real`` says which of them are no padding, (b, n); ``refusal``
    why the pass cannot be repeated, "" if it can.
    """

    tokens: token_rows.Tokens
    key: int | str
    real: Tensor
    refusal: str


def _read_pass(root: Module, args: Args, kwargs: Kwargs) -> RepeatedPass | None:
    """Return the pass with these arguments; None if no argument holds tokens."""
    layout = token_rows.laid_out(root, args, kwargs)
    if layout is None:
        return None
    tokens, key = layout
    real = _not_padding(kwargs.get("attention_mask"), tokens)
    return RepeatedPass(tokens, key, real, _not_probed(root, kwargs, tokens, real))


def probed(
    root: Module,
    args: Args,
    kwargs: Kwargs,
    names: Mapping[Module, str],
    calls: set[str],
    causal: bool | None,
) -> Dependence | None:
    """Return which parts of a model mix tokens, and which outputs depend on later ones, for these inputs.

    None if no argument of the model holds tokens.
    """
    repeated = _read_pass(root, args, kwargs)
    if repeated is None:
        return None
    if repeated.refusal:
        return Dependence(causal, reason=repeated.refusal, later=True)
    probe, run = _prepare_probe(root, args, kwargs, names, calls, causal, repeated)
    try:
        run(None, probe.part, probe)
        leaks = list(probe.first_changed(run))
    except Unsteady:
        return Dependence(causal, reason=_UNSTEADY)
    # The code of a model may raise anything when it runs again.
    except Exception as error:
        return Dependence(causal, reason=_describe_error(error))
    result = _assign_leaks_to_parts(causal, list(probe.part_findings.values()), leaks)
    return replace(result, padded=not bool(repeated.real.all()))


def _describe_error(error: Exception) -> str:
    return f"a repeated pass raised {one_line(error)[:200]}"


def with_padding(
    known: Dependence, root: Module, args: Args, kwargs: Kwargs, names: Mapping[Module, str]
) -> Dependence:
    """Return what is known of a model, and which outputs depend on padding if these inputs are its first with padding.

    Only a token of padding is changed: what mixes tokens was found in an earlier pass without any.
    """
    if known.padded or known.reason:
        return known
    repeated = _read_pass(root, args, kwargs)
    if repeated is None or repeated.refusal or repeated.real.all():
        return known
    probe, run = _prepare_probe(root, args, kwargs, names, set(), known.causal, repeated)
    try:
        leaks = list(probe.first_changed(run, only_padding=True))
    # What was found without padding stays.
    except Unsteady:
        return replace(known, padded=True, padding_reason=_UNSTEADY)
    except Exception as error:
        return replace(known, padded=True, padding_reason=_describe_error(error))
    result = _assign_leaks_to_parts(known.causal, list(known.parts), leaks)
    return replace(result, leaks=[*known.leaks, *result.leaks][:1], padded=True)


def _prepare_probe(
    root: Module,
    args: Args,
    kwargs: Kwargs,
    names: Mapping[Module, str],
    calls: set[str],
    causal: bool | None,
    repeated: RepeatedPass,
) -> tuple[Probe, Callable[..., None]]:
    """Return a probe of these inputs, and what runs the model with one token of them changed."""
    import torch

    tokens, key = repeated.tokens, repeated.key
    kwargs = {k: x for k, x in kwargs.items() if k not in _LEFT_OUT}
    # A cache that one pass fills would change the next one.
    if "use_cache" in kwargs or hasattr(getattr(root, "config", None), "use_cache"):
        kwargs["use_cache"] = False

    def run(
        changed: ChangedToken | None, see: Callable[..., Any], repeating: Probe | None = None
    ) -> None:
        call_arguments = (
            (args, kwargs) if changed is None else _with_token(tokens, key, args, kwargs, changed)
        )
        with torch.no_grad(), torch.random.fork_rng(), _hook_every_module(repeating, see):
            root(*call_arguments[0], **call_arguments[1])

    return Probe(root, names, calls, causal, tokens, repeated.real), run


def _not_probed(root: Module, kwargs: Kwargs, tokens: token_rows.Tokens, real: Tensor) -> str:
    """Return why a pass cannot be repeated with another token; "" if it can."""
    # With few tokens nothing is later than another.
    if int(real[0].sum()) < token_rows.FEWEST_TOKENS:
        return f"no pass had {token_rows.FEWEST_TOKENS} tokens"
    if getattr(getattr(root, "config", None), "is_encoder_decoder", False):
        return "the model has an encoder and a decoder, whose tokens are different ones"
    length = getattr(promises.cache_in(kwargs), "get_seq_length", None)
    # Tokens in a cache cannot be changed by the arguments.
    if length is not None and int(length()) > tokens.n:
        return "the pass goes on from a cache"
    # Its statistics would change with each pass.
    batch_norms = [
        m for m in root.modules() if m.training and getattr(m, "running_mean", None) is not None
    ]
    return "a norm over the batch is in training; hint: model.eval()" if batch_norms else ""


def _assign_leaks_to_parts(
    causal: bool | None, parts: list[MixingPart], leaks: list[Leak]
) -> Dependence:
    """Give each part the leak that was first seen in a module of it; keep leaks outside of all parts."""
    outside = []
    for leak in leaks:
        around = [p for p in parts if within(leak.module, p.name)]
        if around:
            # The innermost part around the module is to blame.
            part = max(around, key=lambda p: len(p.name))
            parts[parts.index(part)] = replace(part, leak=leak)
        else:
            outside.append(leak)
    return Dependence(causal, parts, outside[:1])


def _not_padding(mask: Any, tokens: token_rows.Tokens) -> Tensor:
    """Return which tokens (b, n) are not padding, by a mask of two axes."""
    import torch

    if mask is None or getattr(mask, "ndim", 0) != 2 or tuple(mask.shape) != (tokens.b, tokens.n):
        return torch.ones(tokens.b, tokens.n, dtype=torch.bool)
    real: Tensor = mask.detach().cpu() != 0
    return real


def _with_token(
    tokens: token_rows.Tokens, key: int | str, args: Args, kwargs: Kwargs, changed: ChangedToken
) -> tuple[Args, Kwargs]:
    """Return a model's arguments with another token at one place."""
    tensor = args[key] if isinstance(key, int) else kwargs[key]
    item, s = changed.item, changed.token
    if tensor.is_floating_point():
        new = tokens.changed(tensor, (s,), item)
    else:
        new = tensor.clone()
        # Ids that this model is known to take; those of other places, since padding may have one alone.
        ids = tensor[item]
        others = ids[ids != ids[s]]
        new[item, s] = others[0] if len(others) else ids[s] ^ 1
    if isinstance(key, int):
        return (*args[:key], new, *args[key + 1 :]), kwargs
    return args, {**kwargs, key: new}


@contextmanager
def _hook_every_module(probe: Probe | None, see: Callable[..., Any]) -> Iterator[None]:
    """Have every module that runs seen, and what it returns replaced where parts are held fixed.

    These hooks serve all modules of the process: passes of other threads are left alone.
    """
    from torch.nn.modules import module as hooks

    probing_thread = threading.get_ident()

    # Hooks of torch are global: other threads pass here as well.
    def entered(module: Module, args: Args) -> None:
        if probe is not None and threading.get_ident() == probing_thread:
            probe.entered(module)

    def left(module: Module, args: Args, kwargs: Kwargs, out: Any) -> Any:
        if threading.get_ident() != probing_thread:
            return None
        if probe is None:
            return see(module, args, kwargs, out)
        # While a part is held fixed, outputs are replaced and not recorded.
        if probe.held_outputs is None:
            see(module, args, kwargs, out)
        return probe.left(module, args, kwargs, out)

    handles = (
        hooks.register_module_forward_pre_hook(entered),
        hooks.register_module_forward_hook(left, with_kwargs=True),
    )
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
