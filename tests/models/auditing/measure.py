"""How much of real models is read, how often right ones are accused, and which seeded faults are named.

python -m tests.models.auditing.measure coverage [FAMILY ...]
python -m tests.models.auditing.measure faults [DTYPE ...]
python -m tests.models.auditing.measure torch
"""

import sys
from collections import Counter
from collections.abc import Iterator
from itertools import product
from typing import Any

from symattn import audit
from tests.models.auditing.families import CACHED, FAMILIES, HALVES, decoding, forward, inputs, made
from tests.models.auditing.seeds import SEEDS, seeded

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
    """Calls seen, read, compared with a configuration, accused; of each family."""
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


def modules(_: list[str]) -> None:
    """torch's own modules and function: calls seen, read, accused; with gradients and without."""
    import torch

    from tests.models.auditing.torch_modules import DTYPES as formats
    from tests.models.auditing.torch_modules import functions, ways

    counts: Counter[str] = Counter()
    for dtype, first, training, grad in product(formats, (True, False), (True, False), (True, False)):
        for way in (*ways(dtype, first, training), *functions(dtype)):
            with torch.set_grad_enabled(grad), audit(way.module) as report:
                way.run()
            counts["runs"] += 1
            counts["seen"] += len(report.findings)
            counts["read"] += report.read
            for f in report.findings:
                counts["accused"] += f.state == "wrong"
                counts[f.via] += 1
                if f.state != "pass as given":
                    print(f"  {dtype} {way.words} {f.layer}: {f.verdict}")
    print(dict(counts))


if __name__ == "__main__":
    {"coverage": coverage, "faults": faults, "torch": modules}[sys.argv[1]](sys.argv[2:])
