"""Faults in layers, seeded into tiny models: each in one part, outside of the call of attention."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import MethodType
from typing import Any
from unittest.mock import patch

from symattn import audit
from symattn.models.auditing.audit_report import AuditReport
from tests.models.auditing.families import inputs
from tests.models.auditing.layers.families import made

Change = Callable[[Any, ExitStack], None]


@dataclass(frozen=True)
class Seed:
    """A fault: the family, the part that it is in, the words that name it, how it is made, and what the model needs."""

    family: str
    part: str
    words: str
    make: Change
    fields: dict[str, Any] = field(default_factory=dict)


def _named(ending: str, change: Callable[[Any], Any]) -> Change:
    """A change of each module whose name ends so."""

    def seed(model: Any, stack: ExitStack) -> None:
        for name, module in model.named_modules():
            if name.endswith(ending):
                change(module)

    return seed


def _forward(ending: str, forward: Callable[..., Any]) -> Change:
    return _named(ending, lambda module: setattr(module, "forward", MethodType(forward, module)))


def _eps(module: Any) -> None:
    module.variance_epsilon *= 10


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


def _turned(family: str, other: str) -> Change:
    """Rotations with the pairs of another family."""

    def seed(model: Any, stack: ExitStack) -> None:
        from importlib import import_module

        room = import_module(f"transformers.models.{family}.modeling_{family}")
        wrong = import_module(f"transformers.models.{other}.modeling_{other}").rotate_half
        stack.enter_context(patch.object(room, "rotate_half", wrong))

    return seed


def _neighbours(model: Any, stack: ExitStack) -> None:
    """Llama's rotations of neighbouring columns, with angles that are laid out for them."""
    from transformers.models.glm import modeling_glm
    from transformers.models.llama import modeling_llama

    right = modeling_llama.apply_rotary_pos_emb

    def apply_rotary_pos_emb(q: Any, k: Any, cos: Any, sin: Any, **more: Any) -> Any:
        half = cos.shape[-1] // 2
        cos, sin = (t[..., :half].repeat_interleave(2, dim=-1) for t in (cos, sin))
        with patch.object(modeling_llama, "rotate_half", modeling_glm.rotate_half):
            return right(q, k, cos, sin, **more)

    stack.enter_context(patch.object(modeling_llama, "apply_rotary_pos_emb", apply_rotary_pos_emb))


def _late(model: Any, stack: ExitStack) -> None:
    for name, module in model.named_modules():
        if name.endswith("rotary_emb"):
            right = module.forward
            module.forward = lambda x, position_ids, right=right: right(x, position_ids + 1)


def _tanh(module: Any) -> None:
    import torch

    module.act = torch.nn.GELU(approximate="tanh")


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


def _ten_times(module: Any) -> None:
    module.eps *= 10


def _tanh_between(module: Any) -> None:
    import torch

    module.intermediate_act_fn = torch.nn.GELU(approximate="tanh")


def _added_to_normed(module: Any) -> None:
    module.apply_residual_connection_post_layernorm = True


def _no_residual(self: Any, x: Any, residual: Any) -> Any:
    return self.down_proj(self.act(self.up_proj(x)))


_OTHER_PAIRS = "neighbouring columns 2l and 2l + 1 are rotated together, not column l with l + r/2"
SEEDS = (
    Seed("llama", "attention_norm", "ε is 0.0001, expected 1e-05", _named("input_layernorm", _eps),
         {"rms_norm_eps": 1e-5, "scale": 0.005}),
    Seed("gemma2", "mlp_norm_after", "the gain, stored as an offset from one, is used without the 1",
         _forward("post_feedforward_layernorm", _no_one)),
    Seed("llama", "attention.position", "the base of the frequencies is 1000, not 10000", _named("rotary_emb", _base)),
    Seed("llama", "attention.position", "the frequencies are rounded to", _rough,
         {"rope_parameters": {"rope_type": "default", "rope_theta": 700.0}}),
    Seed("llama", "attention.q_rotated", _OTHER_PAIRS, _neighbours),
    Seed("cohere", "attention.k_rotated", "halves are exchanged with angles that are laid out for neighbours",
         _turned("cohere", "llama")),
    Seed("llama", "attention.position", "positions are one too large", _late),
    Seed("gpt_neox", "mlp.hidden", "the activation is gelu_tanh, not gelu", _named(".mlp", _tanh)),
    Seed("llama", "mlp.hidden", "gate and up are exchanged", _forward(".mlp", _exchanged)),
    Seed("qwen2", "attention.k", "the bias is left out", _forward("k_proj", _no_bias)),
    Seed("qwen3", "attention.q_norm", "it is not normalised at all", _forward("q_norm", lambda self, x: x)),
    Seed("qwen3", "attention.k_norm", "it is left out: attention is called with what was projected", _no_norm),
    Seed("llama", "attention_stream", "the residual starts from the tokens after the norm",
         _forward("layers.0", _after_norm)),
    Seed("llama", "attention.q", "it reads the tokens that the layer is given, not what attention_norm gave",
         _forward("layers.0", _before_norm)),
    Seed("bert", "attention_norm", "ε is 0.1, expected 0.01",
         _named("attention.output.LayerNorm", _ten_times), {"layer_norm_eps": 0.01}),
    Seed("bert", "mlp.hidden", "the activation is gelu_tanh, not gelu", _named(".intermediate", _tanh_between)),
    Seed("bloom", "attention_stream", "the residual starts from the tokens after the norm",
         _named("h.0", _added_to_normed)),
    Seed("mpt", "output", "the residual is left out", _forward(".ffn", _no_residual)),
    Seed("gpt_neo", "mlp_norm", "ε is 0.1, expected 0.01", _named("ln_2", _ten_times),
         {"layer_norm_epsilon": 0.01}),
    Seed("olmo", "mlp_norm", "it is not normalised at all", _forward("post_attention_layernorm", lambda self, x: x)),
    Seed("olmo2", "attention.q_norm", "it is not normalised at all", _forward("q_norm", lambda self, x: x)),
    Seed("exaone4", "mlp_norm", "it is not normalised at all",
         _forward("post_feedforward_layernorm", lambda self, x: x)),
)  # fmt: skip


@contextmanager
def fault(seed: Seed, dtype: str) -> Iterator[Any]:
    """A model with the fault."""
    import torch

    model = made(seed.family, getattr(torch, dtype), **seed.fields)
    with ExitStack() as stack:
        seed.make(model, stack)
        yield model


def seeded(seed: Seed, dtype: str) -> AuditReport:
    """What an audit of layers says of a model with this fault."""
    import torch

    with fault(seed, dtype) as model, torch.no_grad(), audit(model, layers=True, rows=1) as report:
        model(**inputs(seed.family, model.dtype))
    return report
