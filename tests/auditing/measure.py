"""How much of real models is read, how often right ones are accused, which seeded faults are named, and what it costs.

python -m tests.auditing.measure coverage [FAMILY ...]
python -m tests.auditing.measure faults [DTYPE ...]
python -m tests.auditing.measure overhead
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from symattn import audit
from tests.auditing.families import CACHED, FAMILIES, HALVES, decoding, forward, inputs, made
from tests.auditing.seeds import SEEDS, seeded

DTYPES = ("float32", "bfloat16", "float16")


def runs(name: str) -> Iterator[tuple[str, Any, Any]]:
    """The ways in which a family is run: in words, the model, what runs it."""
    import torch

    for dtype in DTYPES:
        for implementation in ("eager", "sdpa"):
            try:
                model = made(name, getattr(torch, dtype), implementation)
            except ValueError as refused:  # of sdpa, by families that have no such function
                print(f"  {name} {dtype} {implementation}: {str(refused)[:60]}")
                continue
            for padding in ("none", "left", "right") if name != "whisper" else ("none",):
                given = inputs(name, model.dtype, padding)
                yield f"{dtype} {implementation} {padding} prefill", model, forward(model, given)
                if name in CACHED:
                    yield f"{dtype} {implementation} {padding} decoding", model, decoding(model, given)
            if name in CACHED and name not in HALVES:
                yield f"{dtype} {implementation} static cache", model, decoding(model, inputs(name, None), static=True)


def coverage(names: list[str]) -> None:
    """Calls seen, read, held to a configuration, accused; of each family."""
    import torch

    total: Counter[str] = Counter()
    for name in names or FAMILIES:
        counts: Counter[str] = Counter()
        for words, model, run in runs(name):
            try:
                with torch.no_grad(), audit(model) as report:
                    run()
            except RuntimeError as error:  # of a family that cannot be run so, such as Bloom from a static cache
                print(f"  {name} {words}: {str(error)[:60]}")
                continue
            counts["runs"] += 1
            counts["seen"] += len(report.findings)
            counts["read"] += report.read
            counts["held"] += sum(f.intent is not None for f in report.findings)
            counts["accused"] += sum(f.state == "wrong" for f in report.findings)
            for f in report.findings:
                if f.state != "pass" or f.unknown:
                    print(f"  {name} {words} {f.layer}: {f.verdict} {f.unknown[:90]}")
        print(f"{name}: {dict(counts)}", flush=True)
        total += counts
    print(f"all: {dict(total)}")


def faults(dtypes: list[str]) -> None:
    """Seeded faults: found, and named as what they are."""
    found: Counter[str] = Counter()
    for dtype in dtypes or DTYPES:
        for words in SEEDS:
            report = seeded(words, dtype)
            wrong = [f for f in report.findings if f.state == "wrong"]
            named = bool(wrong) and all(words in f.cause for f in wrong)
            found["seeded"] += 1
            found["found"] += bool(wrong)
            found["named"] += named
            if not named:
                print(f"  {dtype} {words}: {[f.verdict for f in report.findings]}")
    print(dict(found))


def overhead(_: list[str]) -> None:
    """The time of a forward pass with an audit, over that without, for 4 layers of 4 heads."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=4,
        vocab_size=50, max_position_embeddings=4096,
    )  # fmt: skip
    for dtype in (torch.float32, torch.bfloat16):
        model = LlamaForCausalLM(config).eval().to(dtype)
        for n in (256, 2048):
            ids = torch.randint(0, 50, (1, n))
            plain, audited = _timed(model, ids, False), _timed(model, ids, True)
            print(f"{dtype} n={n}: {plain:.2f} s, audited {audited:.2f} s, {audited / plain:.2f} times", flush=True)


def _timed(model: Any, ids: Any, watched: bool) -> float:
    import torch

    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        with torch.no_grad():
            if watched:
                with audit(model):
                    model(ids)
            else:
                model(ids)
        best = min(best, time.process_time() - start)
    return best


if __name__ == "__main__":
    {"coverage": coverage, "faults": faults, "overhead": overhead}[sys.argv[1]](sys.argv[2:])
