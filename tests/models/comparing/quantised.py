"""Caches that quantise, right and wrong, on the layers of transformers."""

from collections.abc import Callable
from typing import Any


def cache(bits: int = 4, wrong: str = "") -> Callable[[Any, int], Any]:
    """Rounds every token of a head to levels from its least to its largest number; the last three stay as they are."""

    def make(config: Any, length: int) -> Any:
        from transformers import Cache

        layer = _layer(wrong)
        return Cache(layers=[layer(nbits=bits, residual_length=4) for _ in range(config.num_hidden_layers)])

    return make


def float8(config: Any, length: int) -> Any:
    """The one of transformers, which needs no other package."""
    from transformers import QuantizedCache

    return QuantizedCache("fp8", config)


def _layer(wrong: str) -> Any:
    import torch
    from transformers.cache_utils import QuantizedLayer

    class Rounding(QuantizedLayer):  # type: ignore[misc]
        def _quantize(self, x: Any, axis: int) -> Any:
            low, high = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
            step = ((high - low) / (2**self.nbits - 1)).clamp(min=1e-9)  # padding may be zeros
            return torch.round((x - low) / step), step, low

        def _dequantize(self, stored: Any) -> Any:
            codes, step, low = stored
            return codes * step + low

    def changed(change: Callable[[Any], Any]) -> type:
        """What comes back is changed."""
        again = {"_dequantize": lambda self, stored: change(Rounding._dequantize(self, stored))}
        return type("Changed", (Rounding,), again)

    class Stale(Rounding):
        """The tokens that are not yet rounded are those of the call before."""

        def update(self, keys: Any, values: Any, *given: Any, **told: Any) -> Any:
            held = self.keys if self.is_initialized else None
            k, v = super().update(keys, values, *given, **told)
            if held is not None and held.numel() and held.shape[2] > 1:
                at = slice(k.shape[2] - keys.shape[2] - held.shape[2], k.shape[2] - keys.shape[2])
                k = k.clone()
                k[:, :, at] = k[:, :, at].roll(1, 2)
            return k, v

    class Forgetting(Rounding):
        """What is not yet rounded is left out of what comes back."""

        def update(self, keys: Any, values: Any, *given: Any, **told: Any) -> Any:
            k, v = super().update(keys, values, *given, **told)
            return (k[:, :, 1:], v[:, :, 1:]) if k.shape[2] > keys.shape[2] + 2 else (k, v)

    class Counting(Rounding):
        """It says that it holds a token less, so that positions are off by one."""

        def get_seq_length(self) -> int:
            return max(int(super().get_seq_length()) - 1, 0)

        def get_mask_sizes(self, *given: Any) -> tuple[int, int]:
            count = given[0] if isinstance(given[0], int) else len(given[0])
            return self.cumulative_length + count, 0

    return {
        "": Rounding, "stale": Stale, "forgetting": Forgetting, "counting": Counting,
        "losing": changed(lambda x: torch.cat([x[:, :, :3], x[:, :, 2:3], x[:, :, 4:]], 2)),
        "scaling": changed(lambda x: x * 1.5),
        "zeros": changed(lambda x: torch.cat([x[:, :, :1] * 0, x[:, :, 1:]], 2)),
    }[wrong]  # fmt: skip
