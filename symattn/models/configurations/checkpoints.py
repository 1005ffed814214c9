"""One attention of a checkpoint in safetensors: found by the names of its tensors, read without the others."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from symattn.document.errors import InputError, MissingExtra
from symattn.models.configurations.rules import Kind
from symattn.models.configurations.weights import passed_over

MOST_BYTES = 2**30  # of one attention and of the rows of its tokens
_OWN = r"self_attn|self_attention|attn\.attention|attention|attn|SelfAttention"
_CROSS = r"encoder_attn|EncDecAttention"
_EMBEDDING = re.compile(r"(^|\.)(embed_tokens|wte|word_embeddings|embed_in|shared|tok_embeddings)\.weight$")
_WIDE = {"F64", "F32", "F16", "BF16"}


class Checkpoint:
    """An open file of safetensors. Raises InputError for a file that is none, MissingExtra without the library."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        try:
            from safetensors import SafetensorError, safe_open
        except ImportError as error:
            raise MissingExtra("safetensors", "transformers") from error
        self.path = str(path)
        if os.path.isdir(self.path):
            raise InputError(f"{self.path} is a directory; hint: name the safetensors file in it")
        try:
            opened: Any = safe_open(self.path, framework="np")
            self.file, self.names = opened, tuple(map(str, opened.keys()))
        except (SafetensorError, OSError, ValueError) as error:
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise InputError(f"{self.path} is not a readable safetensors file: {first[:160]}") from None

    def attention(self, layer: int, kind: Kind = "self") -> dict[str, np.ndarray]:
        """The tensors of one attention, by their names below it. Raises InputError where there are none."""
        half = {"encoder": "encoder", "decoder": "decoder", "cross": "decoder"}.get(kind, "")
        which = _CROSS if kind == "cross" else _OWN
        below = re.compile(
            rf"^(?:.*\.)?(?:layers?|h|blocks?|albert_layer_groups)\.{layer}\.(?:albert_layers\.0\.)?(?:layer\.\d\.)?(?:{which})\.(.+)$"
        )
        named = {m[1]: name for name in self.names if half in name and (m := below.match(name))}
        found = {n: name for n, name in named.items() if not passed_over(n)}
        if not found:
            raise InputError(f"{self.path} has no attention of the layer {layer} by a name that is known")
        sizes = {below: self._shape(name) for below, name in found.items()}
        self._check(sum(8 * int(np.prod(shape, dtype=object)) for shape in sizes.values()))
        return {below: self._wide(self.file.get_tensor(name)) for below, name in found.items()}

    def rows(self, ids: Sequence[int]) -> np.ndarray:
        """The rows of the embedding of tokens. Raises InputError for ids that it does not have."""
        names = [name for name in self.names if _EMBEDDING.search(name)]
        if not names:
            raise InputError(f"{self.path} has no embedding of tokens by a name that is known")
        shape = self._shape(names[0])
        if len(shape) != 2:
            raise InputError(f"{self.path}: the embedding {names[0][:80]} has {len(shape)} axes; a matrix is expected")
        n, width = shape
        self._check(8 * len(ids) * width)
        for i in ids:
            if not 0 <= i < n:
                raise InputError(f"token {i} is asked for; the embedding {names[0]} has {n} rows, counted from 0")
        table = self.file.get_slice(names[0])
        return self._wide(np.concatenate([table[i : i + 1] for i in ids]))

    def _shape(self, name: str) -> tuple[int, ...]:
        piece = self.file.get_slice(name)
        if piece.get_dtype() not in _WIDE:
            raise InputError(f"{self.path}: {name[:80]} holds {piece.get_dtype()}; known: {', '.join(sorted(_WIDE))}")
        return tuple(piece.get_shape())

    def _check(self, size: int) -> None:
        if size > MOST_BYTES:
            raise InputError(f"{self.path}: one attention of {size} bytes; at most {MOST_BYTES} are read")

    @staticmethod
    def _wide(array: object) -> np.ndarray:
        """The numbers in float64, which holds those of every format here exactly."""
        return np.asarray(array).astype(np.float64)
