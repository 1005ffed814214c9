"""What an audit of whole layers costs: processor time of one pass through one layer, beside a pass without an audit.

A layer of Llama of random weights, with heads of 64 columns, a fourth of them of keys and values, and an MLP four times
as wide as the model.
Command: ``OMP_NUM_THREADS=1 python -m benchmarks.audit_layers 512 2048``
"""

from __future__ import annotations

import sys
from time import process_time

import torch
from transformers import LlamaConfig, LlamaModel

from symattn.models.auditing.audit import audit

TOKENS = 64


def model(width: int) -> LlamaModel:
    """One layer of this width, in float32."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=1000, hidden_size=width, intermediate_size=4 * width, num_hidden_layers=1,
        num_attention_heads=width // 64, num_key_value_heads=max(width // 256, 1),
    )  # fmt: skip
    return LlamaModel(config).eval()


def main(widths: list[int]) -> None:
    """Seconds of processor time, for each width."""
    for width in widths:
        tested, ids = model(width), torch.arange(TOKENS)[None]
        with torch.no_grad():
            tested(ids)
            began = process_time()
            tested(ids)
            plain = process_time() - began
            began = process_time()
            with audit(tested, layers=True) as report:
                tested(ids)
        report.raise_if_wrong(strict=True)
        print(
            f"{width} columns: {process_time() - began:.1f} s with an audit, {plain:.2f} s without"
        )


if __name__ == "__main__":
    main([int(width) for width in sys.argv[1:]] or [512, 2048])
