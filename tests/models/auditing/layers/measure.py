"""How often parts of right layers are accused: python -m tests.models.auditing.layers.measure DTYPE [FAMILY ...]"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from symattn import audit
from symattn.models.configurations.layer_layouts import LAYOUTS
from tests.models.auditing.families import decoding, forward, inputs
from tests.models.auditing.layers.families import ENCODERS, made


def runs(family: str, dtype: Any) -> Iterator[tuple[str, Any, Callable[[], Any]]]:
    """The ways in which a family is run: in words, the model, what runs it."""
    model = made(family, dtype)
    given = inputs(family, dtype, "left")
    yield "eager, padding on the left, prefill", model, forward(model, given)
    cached = family not in ENCODERS
    if cached:
        yield "eager, padding on the left, decoding", model, decoding(model, given)
    try:
        model = made(family, dtype, "sdpa")
    except ValueError:  # of families that have no such function
        return
    given = inputs(family, dtype)
    if not cached:
        yield "sdpa, prefill", model, forward(model, given)
        return
    yield "sdpa, decoding", model, decoding(model, given)
    yield "sdpa, static cache", model, decoding(model, given, static=True)


def main(dtype: str, families: list[str]) -> None:
    """Passes through layers and their parts, those accused, those left open; of each family."""
    import torch

    total: Counter[str] = Counter()
    for family in families or LAYOUTS:
        counts: Counter[str] = Counter()
        for words, model, run in runs(family, getattr(torch, dtype)):
            with torch.no_grad(), audit(model, layers=True, rows=1) as report:
                run()
            counts["layers"] += len(report.layers)
            counts["parts"] += sum(len(f.parts) for f in report.layers)
            counts["accused"] += sum(f.state == "wrong" for f in report.layers)
            counts["open"] += sum(f.state == "cannot tell" for f in report.layers)
            told = {f.verdict for f in report.layers if f.state != "pass"}
            for verdict in sorted(told):
                print(f"  {family} {words}: {verdict[:300]}", flush=True)
        print(f"{family} {dtype}: {dict(counts)}", flush=True)
        total.update(counts)
    print(f"all {dtype}: {dict(total)}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
