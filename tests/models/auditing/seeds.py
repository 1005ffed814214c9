"""Faults as they were made in real models, seeded into tiny ones: in the call of attention, in a part of a layer."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from types import MethodType
from typing import Any
from unittest.mock import patch

from symattn import audit, reports
from tests.models.auditing.families import inputs, layered, made

Change = Callable[[Any, ExitStack], None]


@dataclass(frozen=True)
class Seed:
    """A fault: the family, the words that name it, how it is made, the part of a layer that it is in, if in any.

    ``fields`` is what the model needs, and ``padding`` the side on which there is some.
    """

    family: str
    words: str
    make: Change
    part: str = ""
    fields: dict[str, Any] = field(default_factory=dict)
    padding: str = "none"


@contextmanager
def fault(seed: Seed, dtype: str) -> Iterator[Any]:
    """A model with the fault."""
    import torch

    model = (layered if seed.part else made)(seed.family, getattr(torch, dtype), **seed.fields)
    with ExitStack() as stack:
        seed.make(model, stack)
        yield model


def seeded(seed: Seed, dtype: str) -> reports.AuditReport:
    """What an audit says of a model with this fault; of layers, where it is in a part of them."""
    import torch

    how: dict[str, Any] = {"layers": True, "rows": 1} if seed.part else {}
    with fault(seed, dtype) as model, torch.no_grad(), audit(model, **how) as report:
        model(**inputs(seed.family, model.dtype, seed.padding))
    return report


def _modeling(family: str) -> Any:
    return import_module(f"transformers.models.{family}.modeling_{family}")


# -- in the call -------------------------------------------------------------------------------------------------------
def _attribute(name: str, change: Callable[[Any], Any]) -> Change:
    """Another number in every module of attention."""

    def seed(model: Any, stack: ExitStack) -> None:
        for module in model.modules():
            if hasattr(module, "layer_idx") and hasattr(module, "scaling"):
                setattr(module, name, change(getattr(module, name)))

    return seed


def _window(by: int, overlay: str = "sliding_window_overlay") -> Change:
    """Windows, or the chunks that another overlay makes, are longer."""

    def seed(model: Any, stack: ExitStack) -> None:
        from transformers import masking_utils

        right = getattr(masking_utils, overlay)
        stack.enter_context(patch.object(masking_utils, overlay, lambda w, *more: right(w + by, *more)))

    return seed


def _mask_of(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Change:
    """Masks are made of other arguments."""

    def seed(model: Any, stack: ExitStack) -> None:
        right = _modeling("llama").create_causal_mask
        wrong = lambda **given: right(**change(given))  # noqa: E731
        stack.enter_context(patch.object(_modeling("llama"), "create_causal_mask", wrong))

    return seed


def _kernel(change: Callable[..., Any], family: str) -> Change:
    """The function of attention itself is wrong: ``change`` of it and its arguments."""

    def seed(model: Any, stack: ExitStack) -> None:
        right = _modeling(family).eager_attention_forward

        def eager_attention_forward(
            module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **more: Any
        ) -> Any:
            return change(right, module, query, key, value, attention_mask, **more)

        stack.enter_context(patch.object(_modeling(family), "eager_attention_forward", eager_attention_forward))

    return seed


def _inverted(right: Any, module: Any, q: Any, k: Any, v: Any, mask: Any, **more: Any) -> Any:
    import torch

    lowest = torch.finfo(q.dtype).min
    return right(module, q, k, v, torch.where(mask < 0, 0.0, lowest).to(q.dtype), **more)


def _turned(right: Any, module: Any, q: Any, k: Any, v: Any, mask: Any, **more: Any) -> Any:
    h, g = q.shape[1], k.shape[1]
    with patch.object(module, "num_key_value_groups", 1):
        return right(module, q, k.repeat(1, h // g, 1, 1), v.repeat(1, h // g, 1, 1), mask, **more)


def _no_sink(right: Any, module: Any, q: Any, k: Any, v: Any, mask: Any, **more: Any) -> Any:
    return _modeling("llama").eager_attention_forward(module, q, k, v, mask, **more)


def _no_mask(right: Any, module: Any, q: Any, k: Any, v: Any, mask: Any, **more: Any) -> Any:
    return right(module, q, k, v, None, **more)


CALLS = (
    Seed("llama", "scores are scaled by 1.25", _attribute("scaling", lambda x: x * 1.25)),
    Seed("qwen3", "scores are not scaled", _attribute("scaling", lambda x: 1.0)),
    Seed("gemma2", "the softcap is left out", _attribute("attn_logit_softcapping", lambda x: None)),
    Seed("mistral", "the window reaches one key too far back", _window(1)),
    Seed("mistral", "the window stops one key short before the query", _window(-1), padding="left"),
    Seed("modernbert", "the window reaches one key too far on both sides",
         _window(1, "sliding_window_bidirectional_overlay")),
    Seed("llama4_text", "blocks are one key too long", _window(1, "chunked_overlay")),
    Seed("llama", "the padding mask is left out", _mask_of(lambda g: g | {"attention_mask": None}), padding="left"),
    Seed("llama", "the padding mask is that of the next item of the batch",
         _mask_of(lambda g: g | {"attention_mask": g["attention_mask"].flip(0)}), padding="left"),
    Seed("llama", "the mask is inverted", _kernel(_inverted, "llama")),
    Seed("llama", "the mask is ignored", _kernel(_no_mask, "llama")),
    Seed("llama", "heads of keys and values are tiled (repeat)", _kernel(_turned, "llama")),
    Seed("gpt_oss", "the sink is left out", _kernel(_no_sink, "gpt_oss")),
)  # fmt: skip


# -- in a part of a layer ----------------------------------------------------------------------------------------------
def _named(ending: str, change: Callable[[Any], Any]) -> Change:
    """A change of each module whose name ends so."""

    def seed(model: Any, stack: ExitStack) -> None:
        for name, module in model.named_modules():
            if name.endswith(ending):
                change(module)

    return seed


def _set(ending: str, name: str, change: Callable[[Any], Any]) -> Change:
    return _named(ending, lambda module: setattr(module, name, change(getattr(module, name))))


def _ten_times(x: float) -> float:
    return x * 10


def _forward(ending: str, forward: Callable[..., Any]) -> Change:
    return _named(ending, lambda module: setattr(module, "forward", MethodType(forward, module)))


def _no_one(self: Any, x: Any) -> Any:
    return (self._norm(x.float()) * self.weight.float()).type_as(x)


def _base(module: Any) -> None:
    import torch

    width = 2 * len(module.inv_freq)
    module.inv_freq = 1000.0 ** -(torch.arange(0, width, 2).float() / width)


def _rough(model: Any, stack: ExitStack) -> None:
    """As ``model.to`` does; a model in float32 has been in bfloat16 before."""
    import torch

    rotary = next(module for name, module in model.named_modules() if name.endswith("rotary_emb"))
    rotary.inv_freq = rotary.inv_freq.to(torch.bfloat16 if model.dtype == torch.float32 else model.dtype)


def _no_norm(model: Any, stack: ExitStack) -> None:
    """The norm of keys is not called."""
    import torch

    keys = {id(module.k_norm) for module in model.modules() if hasattr(module, "k_norm")}
    norm = next(type(module) for module in model.modules() if id(module) in keys)

    def __call__(self: Any, x: Any) -> Any:
        return x if id(self) in keys else torch.nn.Module.__call__(self, x)

    stack.enter_context(patch.object(norm, "__call__", __call__, create=True))


def _paired(family: str, other: str) -> Change:
    """Rotations with the pairs of another family."""

    def seed(model: Any, stack: ExitStack) -> None:
        stack.enter_context(patch.object(_modeling(family), "rotate_half", _modeling(other).rotate_half))

    return seed


def _neighbours(model: Any, stack: ExitStack) -> None:
    """Llama's rotations of neighbouring columns, with angles that are laid out for them."""
    llama, glm = _modeling("llama"), _modeling("glm")
    right = llama.apply_rotary_pos_emb

    def apply_rotary_pos_emb(q: Any, k: Any, cos: Any, sin: Any, **more: Any) -> Any:
        half = cos.shape[-1] // 2
        cos, sin = (t[..., :half].repeat_interleave(2, dim=-1) for t in (cos, sin))
        with patch.object(llama, "rotate_half", glm.rotate_half):
            return right(q, k, cos, sin, **more)

    stack.enter_context(patch.object(llama, "apply_rotary_pos_emb", apply_rotary_pos_emb))


def _late(model: Any, stack: ExitStack) -> None:
    for name, module in model.named_modules():
        if name.endswith("rotary_emb"):
            right = module.forward
            module.forward = lambda x, position_ids, right=right: right(x, position_ids + 1)


def _exchanged(self: Any, x: Any) -> Any:
    return self.down_proj(self.act_fn(self.up_proj(x)) * self.gate_proj(x))


def _no_bias(self: Any, x: Any) -> Any:
    import torch

    return torch.nn.functional.linear(x, self.weight)


def _after_norm(self: Any, hidden_states: Any, **more: Any) -> Any:
    residual = normed = self.input_layernorm(hidden_states)
    hidden_states = residual + self.self_attn(hidden_states=normed, **more)[0]
    return hidden_states + self.mlp(self.post_attention_layernorm(hidden_states))


def _before_norm(self: Any, hidden_states: Any, **more: Any) -> Any:
    self.input_layernorm(hidden_states)
    hidden_states = hidden_states + self.self_attn(hidden_states=hidden_states, **more)[0]
    return hidden_states + self.mlp(self.post_attention_layernorm(hidden_states))


def _tanh(_: Any) -> Any:
    import torch

    return torch.nn.GELU(approximate="tanh")


def _no_residual(self: Any, x: Any, residual: Any) -> Any:
    return self.down_proj(self.act(self.up_proj(x)))


_OTHER_PAIRS = "adjacent columns 2l and 2l + 1 are rotated together, not column l with l + r/2"
LAYERS = (
    Seed("llama", "ε is 0.0001, expected 1e-05", _set("input_layernorm", "variance_epsilon", _ten_times),
         "attention_norm", {"rms_norm_eps": 1e-5, "scale": 0.005}),
    Seed("gemma2", "the gain, stored as an offset from one, is used without the 1",
         _forward("post_feedforward_layernorm", _no_one), "mlp_norm_after"),
    Seed("llama", "the base of the frequencies is 1000, not 10000", _named("rotary_emb", _base), "attention.position"),
    Seed("llama", "the frequencies are rounded to", _rough, "attention.position",
         {"rope_parameters": {"rope_type": "default", "rope_theta": 700.0}}),
    Seed("llama", _OTHER_PAIRS, _neighbours, "attention.q_rotated"),
    Seed("cohere", "halves are rotated with angles in the interleaved layout", _paired("cohere", "llama"),
         "attention.k_rotated"),
    Seed("llama", "positions are one too large", _late, "attention.position"),
    Seed("gpt_neox", "the activation is gelu_tanh, not gelu", _set(".mlp", "act", _tanh), "mlp.hidden"),
    Seed("llama", "the activation is that of the other projection: of up, not of the gate",
         _forward(".mlp", _exchanged), "mlp.hidden"),
    Seed("qwen2", "the bias is left out", _forward("k_proj", _no_bias), "attention.k"),
    Seed("qwen3", "it is not normalised at all", _forward("q_norm", lambda self, x: x), "attention.q_norm"),
    Seed("qwen3", "it is left out: attention is called with what was projected", _no_norm, "attention.k_norm"),
    Seed("llama", "the residual starts from the tokens after the norm", _forward("layers.0", _after_norm),
         "attention_stream"),
    Seed("llama", "it reads the tokens that the layer is given, not what attention_norm gave",
         _forward("layers.0", _before_norm), "attention.q"),
    Seed("bert", "ε is 0.1, expected 0.01", _set("attention.output.LayerNorm", "eps", _ten_times), "attention_norm",
         {"layer_norm_eps": 0.01}),
    Seed("bert", "the activation is gelu_tanh, not gelu",
         _set(".intermediate", "intermediate_act_fn", _tanh), "mlp.hidden"),
    Seed("bloom", "the residual starts from the tokens after the norm",
         _set("h.0", "apply_residual_connection_post_layernorm", lambda _: True), "attention_stream"),
    Seed("mpt", "the residual is left out", _forward(".ffn", _no_residual), "output"),
    Seed("gpt_neo", "ε is 0.1, expected 0.01", _set("ln_2", "eps", _ten_times), "mlp_norm",
         {"layer_norm_epsilon": 0.01}),
    Seed("olmo", "it is not normalised at all", _forward("post_attention_layernorm", lambda self, x: x), "mlp_norm"),
    Seed("olmo2", "it is not normalised at all", _forward("q_norm", lambda self, x: x), "attention.q_norm"),
    Seed("exaone4", "it is not normalised at all", _forward("post_feedforward_layernorm", lambda self, x: x),
         "mlp_norm"),
)  # fmt: skip
