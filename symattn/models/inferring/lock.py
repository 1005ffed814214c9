"""The lock: a line for each kind of part of each model type, to be reviewed, committed, and held against a release."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from symattn.document.errors import InputError
from symattn.document.evidence import Verdict
from symattn.document.model import Block, Code, Document, Paragraph, Table, headers
from symattn.document.printable import WithVerdict
from symattn.models.inferring.inference import InferredPart, infer

_SEPARATOR = " | "
_MAX_BYTES = 16 * 2**20


def locked_types() -> list[str]:
    """Return the model types that Transformers lists as causal language models."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def lines_of(model_type: str) -> list[str]:
    """Return the lines of one type, one for all parts of which the same is said; one with the reason if none runs."""
    try:
        parts = infer(model_type).parts
    except InputError as error:
        return [_SEPARATOR.join((model_type, "not inferred", str(error)))]
    places: dict[str, list[int]] = {}
    for part in parts:
        layers = places.setdefault(line_of(model_type, part), [])
        # Some parts belong to no layer.
        layers += [] if part.layer is None else [part.layer]
    count = max((layer for layers in places.values() for layer in layers), default=0) + 1
    return sorted(_with_layers(line, layers, count) for line, layers in places.items())


def _with_layers(line: str, layers: Sequence[int], count: int) -> str:
    """Return a line with the layers of the tiny model of which it is said: kinds may differ by the code alone."""
    model_type, place, *rest = line.split(_SEPARATOR)
    numbers = ", ".join(map(str, sorted(set(layers))))
    where = f"{place}, layers {numbers} of {count}" if numbers else place
    return _SEPARATOR.join((model_type, where, *rest))


def line_of(model_type: str, part: InferredPart) -> str:
    """Return the line of a part, which says nothing of its layer."""
    return _SEPARATOR.join((model_type, *_yield_lock_words(part)))


def _yield_lock_words(part: InferredPart) -> Iterator[str]:
    """Yield what a line says of a part: its place and class, its numbers, the steps of q, k, v, and what is missing."""
    # Layers of one kind have one line: their numbers become stars.
    place = re.sub(r"(^|[.])[0-9]+(?=[.]|$)", r"\1*", part.name)
    yield f"{place} ({part.kind})"
    if part.facts is not None:
        numbers = part.facts.numbers()
        known = {
            name: part.promises.get(name, _format_lock_number(x))
            # Absent fields are left out, so that a line says what there is.
            for name, x in numbers.items()
            if x not in (None, False)
        }
        yield ", ".join(f"{name} = {words}" for name, words in known.items())
        forms = {
            "sink": part.facts.sink,
            "bias": part.facts.bias,
            "rotation": _rotation_layout_of_part(part),
        }
        yield from (f"{name}: {value}" for name, value in forms.items() if value)
        yield from [part.facts.gate] * bool(part.facts.gate)
    # Each kind of mixer once.
    yield from dict.fromkeys(one.call.kind for one in part.mixers if one.call is not None)
    yield from (f"{role} = {steps}" for role, steps in part.chain.items())
    yield from (f"no field: {form}" for form in part.missing)
    yield from (
        f"not explained: {re.sub(r', which differs by .*', '', words)}" for words in part.unknown
    )


def _rotation_layout_of_part(part: InferredPart) -> str:
    return part.facts.rotation.layout if part.facts is not None and part.facts.rotation else ""


def _format_lock_number(x: object) -> str:
    return f"{x:.8g}" if isinstance(x, float) else str(x)


@dataclass(repr=False)
class LockCheck(WithVerdict):
    """How a lock differs from what is inferred now: lines that are gone, and new ones."""

    path: str
    types: int
    gone: list[str]
    new: list[str]

    @property
    def verdict(self) -> Verdict:
        """A fault if any line differs."""
        return Verdict.FAULT if self.gone or self.new else Verdict.NO_FAULT

    def __repr__(self) -> str:
        return self._make_brief_repr(f"models check {self.path}: {self.verdict.value}")

    def document(self) -> Document:
        """The comparison as a document."""
        rows = [("−", line) for line in self.gone]
        rows += [("+", line) for line in self.new]
        cells = tuple(((sign,), (Code(line),)) for sign, line in rows)
        blocks: tuple[Block, ...] = (Table(headers("", "line"), cells),) if rows else ()
        gone = f"{len(self.gone)} line{'s are' if len(self.gone) != 1 else ' is'} gone"
        new = f"{len(self.new)} {'are' if len(self.new) != 1 else 'is'} new"
        words = f"{gone} and {new}, of {self.types} model type{'s' * (self.types != 1)}"
        return Document(
            "listing",
            "models",
            (f"Lock {self.path}",),
            blocks or (Paragraph(("Every line is inferred again.",)),),
            command=f"symattn models check {self.path}",
            verdict=self.verdict,
            reason=(words,),
            record={"path": self.path, "types": self.types, "gone": self.gone, "new": self.new},
        )


def read_lock(path: str) -> list[str]:
    """Return the lines of a lock. Raises ``InputError`` for another file."""
    file = Path(path)
    if not file.is_file() or file.stat().st_size > _MAX_BYTES:
        raise InputError(
            f"models: there is no lock {path}; hint: symattn models lock > models.lock"
        )
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(f"models: {path} is no text in UTF-8") from None
    # Comments and empty lines are for readers.
    locked = [line for line in text.splitlines() if line and not line.startswith("#")]
    for number, line in enumerate(locked, 1):
        if _SEPARATOR not in line:
            raise InputError(f"models: line {number} of {path} is none of a lock: {line[:60]!r}")
    return locked


def check_lock(path: str) -> LockCheck:
    """Infer every type of a lock again, and return which lines differ. Raises ``InputError`` for another file."""
    locked = dict.fromkeys(read_lock(path))
    types = list(dict.fromkeys(line.partition(_SEPARATOR)[0] for line in locked))
    now = dict.fromkeys(line for model_type in types for line in lines_of(model_type))
    gone = [line for line in locked if line not in now]
    new = [line for line in now if line not in locked]
    return LockCheck(path, len(types), gone, new)


def lock_text(types: Sequence[str]) -> str:
    """Return the lock of these model types; of all causal language models of Transformers without any."""
    import transformers

    lines = [line for model_type in (types or locked_types()) for line in lines_of(model_type)]
    head = f"# inferred (transformers {transformers.__version__}); hold it against a release: symattn models check FILE"
    return "\n".join([head, *lines])
