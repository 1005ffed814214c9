"""Mistakes of kinds that no list of symattn names, planted in tiny models: python -m tests.models.inferring.planted.

Each is made in the code of Transformers while a model of the type runs. It counts as found if an audit of the model
says that something is wrong, or if the lines of its lock, or what its fields say, are no longer those of the right
code. Right code, with and without padding, must pass both.
"""

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from symattn import Verdict, configurations
from tests.models.inferring.measure import audited, faults

Change = Callable[[Any], Any]


@dataclass(frozen=True)
class Plant:
    """A mistake: in words, the model type, the function that is replaced, by what, and whether a token is padding."""

    words: str
    model_type: str
    path: str
    change: Change
    padded: bool = False

    @property
    def target(self) -> str:
        """Return the path of the function; a name alone stands in the file of the model."""
        file = self.model_type.removesuffix("_text")
        inner = f"transformers.models.{file}.modeling_{file}.{self.path}"
        return self.path if self.path.startswith(("torch.", "transformers.")) else inner


@contextmanager
def planted(plant: Plant) -> Iterator[None]:
    """Replace the function while the context lasts."""
    with ExitStack() as stack:
        replaced = patch(plant.target)
        own = replaced.get_original()[0]
        stack.enter_context(patch(plant.target, plant.change(own)))
        yield


def findings(plant: Plant) -> list[str]:
    """Return what is said of a planted mistake, by an audit, by lines of the lock, and by fields."""
    right = configurations.lines_of(plant.model_type)
    with planted(plant):
        report = audited(configurations.tiny(plant.model_type), plant.padded)
        wrong = configurations.lines_of(plant.model_type)
        differs = [
            words for part in configurations.parts_of(configurations.tiny(plant.model_type)) for words in part.differs
        ]
    said = [f"audit: {words}" for words in faults(report)[:1]] if report.verdict is Verdict.FAULT else []
    said += [f"lock: {line}" for line in wrong if line not in right][:1]
    return said + [f"fields: {words}" for words in differs[:1]]


# -- changes -----------------------------------------------------------------------------------------------------------
def _mask(change: Callable[[Any, Any], Any], name: str = "attention_mask") -> Change:
    """Change the mask that a layer's attention is given."""
    return lambda own: lambda self, *args, **kwargs: own(self, *args, **{**kwargs, name: change(self, kwargs[name])})


def _one_future_token(self: Any, mask: Any) -> Any:
    mask = mask.clone()
    if self.layer_idx == 1:
        mask[..., 3, 4] = 0
    return mask


def _strict(self: Any, mask: Any) -> Any:
    mask = mask.clone()
    for token in range(2, mask.shape[-1]):
        mask[..., token, token] = mask.min()
    return mask


def _without_padding(own: Any) -> Any:
    return lambda *args, **kwargs: own(*args, **{**kwargs, "attention_mask": None})


def _longer_window(own: Any) -> Any:
    return lambda width, *more: own(width + 1, *more)


def _last_columns(own: Any) -> Any:
    """Rotate the last columns in place of the first."""

    def turned(q: Any, k: Any, cos: Any, sin: Any, **more: Any) -> Any:
        width = cos.shape[-1]
        rolled = (x.roll(width, -1) for x in (q, k))
        return tuple(x.roll(-width, -1) for x in own(*rolled, cos, sin, **more))

    return turned


def _queries_one_place_on(own: Any) -> Any:
    def turned(q: Any, k: Any, cos: Any, sin: Any, **more: Any) -> Any:
        q, _ = own(q, k, cos.roll(-1, -2), sin.roll(-1, -2), **more)
        return q, own(q, k, cos, sin, **more)[1]

    return turned


def _values_turned(own: Any) -> Any:
    import torch

    def forward(module: Any, q: Any, k: Any, v: Any, *rest: Any, **more: Any) -> Any:
        places = torch.arange(v.shape[-2], dtype=v.dtype)[:, None]
        a, b = v.chunk(2, -1)
        turned = torch.cat([a * places.cos() - b * places.sin(), a * places.sin() + b * places.cos()], -1)
        return own(module, q, k, turned, *rest, **more)

    return forward


def _ones(own: Any) -> Any:
    return lambda places, *rest: own(places, *rest) * 0 + 1


def _late(own: Any) -> Any:
    import torch

    return lambda x, *rest, **named: own(torch.nn.functional.pad(x, (0, 1))[..., 1:], *rest, **named)


def _of_mean(own: Any) -> Any:
    return lambda self, x: own(self, x - x.mean(tuple(range(x.ndim - 1)), keepdim=True))


def _undecayed_read(own: Any) -> Any:
    """What a token replaces is read from the state before it decays."""

    def rule(q: Any, k: Any, v: Any, g: Any, beta: Any, **more: Any) -> Any:
        import torch

        if more.get("use_qk_l2norm_in_kernel"):
            q, k = (x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6) for x in (q, k))
        times = v.shape[2] // k.shape[2]
        q, k = (x.repeat_interleave(times, 2) for x in (q * q.shape[-1] ** -0.5, k))
        g = g[..., None] if g.ndim == 3 else g
        state, outs = torch.zeros(*k.shape[:1], *k.shape[2:], v.shape[-1], dtype=v.dtype), []
        for t in range(k.shape[1]):
            read = (k[:, t, ..., None] * state).sum(-2)
            state = state * g[:, t].exp()[..., None]
            state = state + k[:, t, ..., None] * (beta[:, t, :, None] * (v[:, t] - read))[..., None, :]
            outs.append((q[:, t, ..., None] * state).sum(-2))
        return torch.stack(outs, 1), None

    return rule


def _state_of_item_before(own: Any) -> Any:
    """The state at the end of an item of the batch is that at the beginning of the next."""

    def scan(x: Any, dt: Any, a: Any, b: Any, c: Any, *rest: Any, **more: Any) -> Any:
        import torch

        both = more.pop("return_final_states", False)
        state, outs = more.pop("initial_states", None), []
        for i in range(len(x)):
            given = (y[i : i + 1] for y in (b, c))
            out, state = own(
                x[i : i + 1], dt[i : i + 1], a, *given, *rest, initial_states=state, return_final_states=True, **more
            )
            outs.append(out)
        return (torch.cat(outs), state) if both else torch.cat(outs)

    return scan


def _forgets_at_chunks(own: Any) -> Any:
    def scan(x: Any, dt: Any, a: Any, b: Any, c: Any, *rest: Any, **more: Any) -> Any:
        import torch

        both = more.pop("return_final_states", False)
        parts = zip(*(y.split(8, 1) for y in (x, dt, b, c)), strict=True)
        outs = [own(px, pdt, a, pb, pc, *rest, **more, return_final_states=True) for px, pdt, pb, pc in parts]
        whole = torch.cat([out for out, _ in outs], 1)
        return (whole, outs[-1][1]) if both else whole

    return scan


def _without(name: str) -> Change:
    return lambda own: lambda *args, **kwargs: own(*args, **{k: x for k, x in kwargs.items() if k != name})


def _linear_beta(own: Any) -> Any:
    """β is a cut line in place of a sigmoid, in the projections of one number for each head."""
    return lambda x: (x / 4 + 0.5).clamp(0, 1) if x.shape[-1] == 4 else own(x)


def _without_bias_of_gates(own: Any) -> Any:
    def forward(self: Any, x: Any) -> Any:
        bias = self.dt_bias.clone()
        self.dt_bias.data.zero_()
        try:
            return own(self, x)
        finally:
            self.dt_bias.data.copy_(bias)

    return forward


def _no_gate(own: Any) -> Any:
    return lambda x, *rest: x * 0 + 1 if x.shape[-1] == 64 else own(x, *rest)


def _no_gain_offset(own: Any) -> Any:
    import torch

    def forward(self: Any, x: Any) -> Any:
        return (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)) * self.weight

    return forward


def _no_value_norm(own: Any) -> Any:
    """Norms without gains, which are those of values, are left out."""
    return lambda self, x: own(self, x) if getattr(self, "with_scale", True) else x


def _tiled(own: Any) -> Any:
    return lambda x, n: x.repeat(1, n, 1, 1)


def _tiled_keys(own: Any) -> Any:
    def rule(q: Any, k: Any, v: Any, **more: Any) -> Any:
        times = v.shape[2] // k.shape[2]
        return own(q.repeat(1, 1, times, 1), k.repeat(1, 1, times, 1), v, **more)

    return rule


def _no_sink(own: Any) -> Any:
    from transformers.models.llama.modeling_llama import eager_attention_forward

    return eager_attention_forward


def _other_kind(own: Any) -> Any:
    """Layers with shared keys take those of layers of another kind, where shapes fit."""

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        shared = kwargs.get("shared_kv_states")
        if self.is_kv_shared_layer and shared:
            others = [x for kind, x in dict(shared).items() if kind != self.layer_type]
            kwargs["shared_kv_states"] = {self.layer_type: (others or list(dict(shared).values()))[0]}
        return own(self, *args, **kwargs)

    return forward


def _one_more_key(own: Any) -> Any:
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        own(self, *args, **kwargs)
        self.index_topk += 1

    return made


def _rotated_elsewhere(own: Any) -> Any:
    """Layers that rotate are those that should not, and the other way round."""

    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        own(self, *args, **kwargs)
        self.is_local_attention = not self.is_local_attention

    return made


def _scaled_by_values(own: Any) -> Any:
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        own(self, *args, **kwargs)
        self.scaling = self.v_head_dim**-0.5

    return made


def _gate_after_norm(own: Any) -> Any:
    import torch

    return lambda self, x, gate=None: own(self, x) * torch.nn.functional.silu(gate)


PLANTS = (
    Plant("the mask lets one future token through in one layer", "hy_v3", "HYV3Attention.forward",
          _mask(_one_future_token)),
    Plant("queries do not see their own key", "hy_v3", "HYV3Attention.forward", _mask(_strict)),
    Plant("padding is read by attention", "hy_v3", "create_causal_mask", _without_padding, True),
    Plant("padding is read by a recurrence", "qwen3_next", "apply_mask_to_padding_states", lambda own: lambda x, m: x,
          True),
    Plant("padding is read by a convolution", "lfm2", "apply_mask_to_padding_states", lambda own: lambda x, m: x, True),
    Plant("windows are one key too long", "afmoe", "transformers.masking_utils.sliding_window_overlay",
          _longer_window),
    Plant("layers that rotate are exchanged with those that do not", "afmoe", "AfmoeAttention.__init__",
          _rotated_elsewhere),
    Plant("the rotation turns the last columns", "qwen3_5_text", "apply_rotary_pos_emb", _last_columns),
    Plant("queries are rotated one place on", "hy_v3", "apply_rotary_pos_emb", _queries_one_place_on),
    Plant("values are rotated", "hy_v3", "eager_attention_forward", _values_turned),
    Plant("the temperature is forgotten", "ministral3", "get_llama_4_attn_scale", _ones),
    Plant("shared keys are those of another layer", "gemma3n_text", "Gemma3nTextAttention.forward", _other_kind),
    Plant("values are not normalised", "gemma3n_text", "Gemma3nRMSNorm.forward", _no_value_norm),
    Plant("gains are w in place of 1 + w", "qwen3_5_text", "Qwen3_5RMSNorm.forward", _no_gain_offset),
    Plant("the gate of the output is left out", "qwen3_next", "torch.sigmoid", _no_gate),
    Plant("the state decays after what a token replaces is read", "kimi_linear", "chunk_kimi_delta_attention",
          _undecayed_read),
    Plant("β is no sigmoid", "qwen3_next", "torch.Tensor.sigmoid", _linear_beta),
    Plant("gates leave out their bias", "kimi_linear", "KimiLinearForgetGate.forward", _without_bias_of_gates),
    Plant("heads of keys are tiled in the delta rule", "qwen3_next", "torch_chunk_gated_delta_rule", _tiled_keys),
    Plant("the convolution sees the next token", "falcon_h1", "causal_conv1d_fn", _late),
    Plant("the convolution has no activation", "olmo_hybrid", "causal_conv1d_fn", _without("activation")),
    Plant("the state is handed to the next item of the batch", "falcon_h1", "mamba2_chunk_scan",
          _state_of_item_before),
    Plant("the state is lost between chunks", "nemotron_h", "mamba2_chunk_scan", _forgets_at_chunks),
    Plant("D x is left out", "falcon_h1", "mamba2_chunk_scan", _without("D")),
    Plant("the sinks are dropped", "gpt_oss", "eager_attention_forward", _no_sink),
    Plant("heads of keys are tiled in attention", "afmoe", "repeat_kv", _tiled),
    Plant("the router sees the mean of all tokens", "deepseek_v32", "DeepseekV32TopkRouter.forward", _of_mean),
    Plant("one key more is chosen", "deepseek_v32", "DeepseekV32Indexer.__init__", _one_more_key),
    Plant("scores are scaled by the width of values", "axk1", "AXK1Attention.__init__", _scaled_by_values),
    Plant("the norm behind a recurrence comes before its gate", "mamba2", "MambaRMSNormGated.forward",
          _gate_after_norm),
    Plant("padding is read by latent attention", "deepseek_v32", "create_causal_mask", _without_padding, True),
)  # fmt: skip


def main(wanted: list[str]) -> None:
    found = accused = 0
    plants = [plant for plant in PLANTS if not wanted or any(word in plant.words for word in wanted)]
    for plant in plants:
        try:
            said = findings(plant)
        except Exception as error:
            said = []
            print(f"  {plant.words}: {type(error).__name__}: {error}"[:300])
        found += bool(said)
        print(f"{'found' if said else 'NOT FOUND'} | {plant.words} | {plant.model_type} | {'; '.join(said)}"[:500],
              flush=True)  # fmt: skip
    for model_type in sorted({plant.model_type for plant in plants}):
        for padded in (False, True):
            wrong = faults(audited(configurations.tiny(model_type), padded))
            accused += bool(wrong)
            if wrong:
                print(f"ACCUSED | {model_type}, padded: {padded} | {'; '.join(wrong)}", flush=True)
    print(f"{found} of {len(plants)} found, {accused} right runs accused")


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    main(sys.argv[1:])
