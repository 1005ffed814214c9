"""The corpus as a folder: ``corpus.json``, and a file of NumPy for each fault and seed."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from symattn.document.codec import record
from symattn.document.errors import InputError
from symattn.document.render import files
from symattn.faults.corpus import CorpusFault, Sample, corpus, sample

_MOST = 100  # seeds: 38 faults of some 5 kB for each make 20 MB
_README = (
    "Each fault has a file of NumPy for each seed: input_* (float32, or bool), exact (the output in float64), right "
    "and wrong (what a right program and one with the mistake give in float32). A rule finds a fault if it refuses "
    "wrong; it must accept right."
)


def export(
    folder: Path, seeds: int = 1, faults: Sequence[CorpusFault] | None = None, force: bool = False
) -> list[Path]:
    """Write ``corpus.json`` and NAME-SEED.npz for the seeds 0 to ``seeds`` − 1; the files are returned.

    Raises ``InputError`` for too many seeds, and for files that are there and not to be replaced.
    """
    if not 1 <= seeds <= _MOST:
        raise InputError(f"seeds must be from 1 to {_MOST}, got {seeds}")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is not a folder; hint: name a new folder")
    results = tuple(faults) if faults is not None else corpus()
    paths = {(k, seed): folder / f"{f.name}-{seed}.npz" for k, f in enumerate(results) for seed in range(seeds)}
    table = folder / "corpus.json"
    folder.mkdir(parents=True, exist_ok=True)
    for path in (table, *paths.values()):
        files.check(path, force)
    for (k, seed), path in paths.items():
        files.write(path, packed(sample(results[k], seed)), force)
    entries = [{**record(f), "files": [paths[k, s].name for s in range(seeds)]} for k, f in enumerate(results)]
    files.write(table, written({"schema": 1, "about": _README, "faults": entries}), force)
    return [table, *paths.values()]


def packed(drawn: Sample) -> bytes:
    """As a file of NumPy, byte for byte the same for the same sample."""
    held = io.BytesIO()
    arrays: dict[str, Any] = drawn.arrays()
    np.savez(held, **arrays)
    return held.getvalue()


def written(record: object) -> str:
    """As JSON."""
    return json.dumps(record, indent=2, ensure_ascii=False) + "\n"
