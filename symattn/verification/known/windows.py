"""Mistakes in documents; those in windows, prefixes and blocks are made by rule."""

from __future__ import annotations

import numpy as np

from symattn.attention.spec import Attention
from symattn.verification.known.mistake import Mistake, in_fields, in_inputs, with_fields


def _numbered(spec: Attention, labels: np.ndarray) -> np.ndarray:
    """Labels of documents that only say where one begins: a label per place."""
    return np.arange(labels.shape[-1]) // max(1, int(np.bincount(np.unique(labels, return_inverse=True)[1]).max()))


MISTAKES: tuple[Mistake, ...] = (
    in_fields("mask", "the documents are ignored", lambda s: s.documents, with_fields(documents=False)),
    in_inputs(
        "mask", "documents are told apart by their places, not by their labels", lambda s: s.documents, doc=_numbered
    ),
)
