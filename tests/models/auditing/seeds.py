"""Faults as they were made in real models, seeded into tiny ones: before the call of attention, and inside of it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from symattn import audit
from symattn.models.auditing.audit_report import AuditReport
from tests.models.auditing.families import forward, inputs, made

Seed = tuple[str, Callable[[Any, ExitStack], None], dict[str, Any]]


def _modules(model: Any) -> Iterator[Any]:
    return (m for m in model.modules() if hasattr(m, "layer_idx") and hasattr(m, "scaling"))


def _scale(model: Any, stack: ExitStack) -> None:
    for module in _modules(model):
        module.scaling *= 1.25


def _no_scale(model: Any, stack: ExitStack) -> None:
    for module in _modules(model):
        module.scaling = 1.0


def _no_cap(model: Any, stack: ExitStack) -> None:
    for module in _modules(model):
        module.attn_logit_softcapping = None


def _window(by: int, overlay: str = "sliding_window_overlay") -> Callable[[Any, ExitStack], None]:
    """Windows, or the chunks that another overlay makes, are longer."""

    def seed(model: Any, stack: ExitStack) -> None:
        from transformers import masking_utils

        right = getattr(masking_utils, overlay)
        stack.enter_context(patch.object(masking_utils, overlay, lambda w, *more: right(w + by, *more)))

    return seed


def _mask_of(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[Any, ExitStack], None]:
    """Masks are made of other arguments."""

    def seed(model: Any, stack: ExitStack) -> None:
        from transformers.models.llama import modeling_llama

        right = modeling_llama.create_causal_mask
        stack.enter_context(patch.object(modeling_llama, "create_causal_mask", lambda **given: right(**change(given))))

    return seed


def _kernel(change: Callable[..., Any], family: str) -> Callable[[Any, ExitStack], None]:
    """The function of attention itself is wrong: ``change`` of it and its arguments."""

    def seed(model: Any, stack: ExitStack) -> None:
        from importlib import import_module

        room = import_module(f"transformers.models.{family}.modeling_{family}")
        right = room.eager_attention_forward

        def eager_attention_forward(
            module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **more: Any
        ) -> Any:
            return change(right, module, query, key, value, attention_mask, **more)

        stack.enter_context(patch.object(room, "eager_attention_forward", eager_attention_forward))

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
    from transformers.models.llama.modeling_llama import eager_attention_forward

    return eager_attention_forward(module, q, k, v, mask, **more)


def _no_mask(right: Any, module: Any, q: Any, k: Any, v: Any, mask: Any, **more: Any) -> Any:
    return right(module, q, k, v, None, **more)


_LEFT = {"padding": "left"}
#: By what the audit must say: the family, the fault, what is run.
SEEDS: dict[str, Seed] = {
    "scores are scaled by 1.25": ("llama", _scale, {}),
    "scores are not scaled": ("qwen3", _no_scale, {}),
    "the softcap is left out": ("gemma2", _no_cap, {}),
    "the window is one key too long, before the query": ("mistral", _window(1), {}),
    "the window is one key too short, before the query": ("mistral", _window(-1), _LEFT),
    "the window is one key too long on both sides": (
        "modernbert", _window(1, "sliding_window_bidirectional_overlay"), {},
    ),
    "blocks are one key too long": ("llama4_text", _window(1, "chunked_overlay"), {}),
    "the padding mask is left out": ("llama", _mask_of(lambda g: g | {"attention_mask": None}), _LEFT),
    "the padding mask is that of the next item of the batch": (
        "llama", _mask_of(lambda g: g | {"attention_mask": g["attention_mask"].flip(0)}), _LEFT,
    ),
    "the mask is inverted": ("llama", _kernel(_inverted, "llama"), {}),
    "the mask is ignored": ("llama", _kernel(_no_mask, "llama"), {}),
    "heads of keys and values are repeated in turn": ("llama", _kernel(_turned, "llama"), {}),
    "the sink is left out": ("gpt_oss", _kernel(_no_sink, "gpt_oss"), {}),
}  # fmt: skip


@contextmanager
def fault(words: str, dtype: str) -> Iterator[tuple[Any, dict[str, Any]]]:
    """A model with a fault, and what to call it with."""
    import torch

    family, seed, options = SEEDS[words]
    model = made(family, getattr(torch, dtype))
    with ExitStack() as stack:
        seed(model, stack)
        yield model, inputs(family, model.dtype, **options)


def seeded(words: str, dtype: str) -> AuditReport:
    """What an audit says of a model with this fault."""
    import torch

    with fault(words, dtype) as (model, given), torch.no_grad(), audit(model) as report:
        forward(model, given)()
    return report
