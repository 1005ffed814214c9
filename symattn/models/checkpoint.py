"""Read one attention of a checkpoint in safetensors, found by the names of its tensors."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from symattn.document.errors import InputError
from symattn.models.configurations.field_rules import Kind
from symattn.models.configurations.stored_weights import passed_over
from symattn.programs import trace_files

MOST_BYTES = 2**30  # of one attention, and of the rows of its tokens
_OWN = r"self_attn|self_attention|attn\.attention|attention|attn|SelfAttention"
_CROSS = r"encoder_attn|EncDecAttention"
_EMBEDDING = re.compile(
    r"(^|\.)(embed_tokens|wte|word_embeddings|embed_in|shared|tok_embeddings)\.weight$"
)
_FLOATS = ("bfloat16", "float16", "float32", "float64")


class Checkpoint:
    """A safetensors file with mapped arrays. Raises ``InputError`` for a file that cannot be read."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = str(path)
        if os.path.isdir(self.path):
            raise InputError(f"{self.path} is a directory; hint: name the safetensors file in it")
        try:
            self.arrays = trace_files.read_safetensors(Path(path))
        except OSError as error:
            raise InputError(f"{self.path} cannot be read: {error.strerror or error}") from None

    def attention(self, layer: int, kind: Kind = "self") -> dict[str, np.ndarray]:
        """Return the tensors of one attention, by their names below it. Raises ``InputError`` if there are none."""
        half = {"encoder": "encoder", "decoder": "decoder", "cross": "decoder"}.get(kind, "")
        which = _CROSS if kind == "cross" else _OWN
        # Names of layers differ by family: layers, h, blocks.
        below = re.compile(
            rf"^(?:.*\.)?(?:layers?|h|blocks?|albert_layer_groups)\.{layer}\.(?:albert_layers\.0\.)?(?:layer\.\d\.)?(?:{which})\.(.+)$"
        )
        # Models with an encoder and a decoder have both under one number.
        of_half = (name for name in self.arrays if half in name)
        names = {m[1]: name for name in of_half if (m := below.match(name))}
        arrays = {
            inner: self._read_float_tensor(name)
            for inner, name in names.items()
            if not passed_over(inner)
        }
        if not arrays:
            raise InputError(f"{self.path} has no attention of the layer {layer} by a known name")
        self._check_attention_size(sum(8 * a.size for a in arrays.values()))
        return {inner: a.astype(np.float64) for inner, a in arrays.items()}

    def rows(self, ids: Sequence[int]) -> np.ndarray:
        """Return the rows of the token embedding. Raises ``InputError`` for ids that it does not have."""
        name = next((name for name in self.arrays if _EMBEDDING.search(name)), None)
        if name is None:
            raise InputError(f"{self.path} has no embedding of tokens by a known name")
        table = self._read_float_tensor(name)
        if table.ndim != 2:
            # Rows of anything but a matrix are no vectors.
            raise InputError(
                f"{self.path}: the embedding {name[:80]} has {table.ndim} axes; a matrix is expected"
            )
        n, width = table.shape
        self._check_attention_size(8 * len(ids) * width)
        # A negative id would count from the end.
        for i in ids:
            if not 0 <= i < n:
                raise InputError(
                    f"token {i} was requested; the embedding {name} has {n} rows, counted from 0"
                )
        return table[list(ids)].astype(np.float64)

    def _read_float_tensor(self, name: str) -> np.ndarray:
        array = self.arrays[name]
        if array.dtype.name not in _FLOATS:
            raise InputError(
                f"{self.path}: {name[:80]} holds {array.dtype}; known: {', '.join(_FLOATS)}"
            )
        return array

    def _check_attention_size(self, size: int) -> None:
        if size > MOST_BYTES:
            raise InputError(
                f"{self.path}: one attention of {size} bytes; at most {MOST_BYTES} are read"
            )
