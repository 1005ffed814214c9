"""What an audit costs: a forward pass with ``audit`` over one without, at 32 rows of each head and 2048 tokens.

Two models of random weights, causal, by ``sdpa``: one layer of the sizes of Llama 3.2 1B (32 heads of 64 columns, 8 of
keys and values, d_model 2048, an MLP of 8192), to which the goal speaks; and four layers of a small one (8 heads of 64
columns, 4 of keys and values, d_model 512, MLPs of 2048), in which less is computed besides for each head that is
judged. Every call is judged as given and by the configuration, entry by entry and by weighted means. One thread; ratios
are of the shortest of several passes each, taken in turns.
Command: ``OMP_NUM_THREADS=1 python -m benchmarks.audit``
"""

from __future__ import annotations

import torch
from transformers import LlamaConfig, LlamaModel

from benchmarks.enclosure import ratio
from symattn.models.auditing.audit import audit

TOKENS, RUNS = 2048, 4
WANTED = {torch.float32: 1.3, torch.bfloat16: 1.9}
SIZES = {
    "a layer of Llama 3.2 1B": (1, 2048, 32, 8),
    "four layers of a small model": (4, 512, 8, 4),
}


def model(dtype: torch.dtype, layers: int, width: int, heads: int, key_heads: int) -> LlamaModel:
    """The model in evaluation."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=1000, hidden_size=width, intermediate_size=4 * width, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=key_heads, max_position_embeddings=TOKENS,
        attn_implementation="sdpa",
    )  # fmt: skip
    return LlamaModel(config).to(dtype).eval()


def measured(tested: LlamaModel) -> float:
    """How long a pass takes with an audit, in parts of one without."""
    ids = torch.randint(0, 1000, (1, TOKENS), generator=torch.Generator().manual_seed(0))

    def plain() -> None:
        with torch.no_grad():
            tested(ids, use_cache=False)

    def audited() -> None:
        with audit(tested) as report:
            plain()
        report.raise_if_wrong()

    return ratio(audited, plain, RUNS)


def main() -> None:
    torch.set_num_threads(1)
    for dtype, wanted in WANTED.items():
        for words, sizes in SIZES.items():
            found = measured(model(dtype, *sizes))
            print(
                f"{str(dtype).removeprefix('torch.')}, {words}: {found:.2f} × a plain pass (wanted: ≤ {wanted} ×)"
            )


if __name__ == "__main__":
    main()
