"""Two runs of a model in float64, compared module by module: the first that receives the same and returns another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from symattn.models.auditing.dependence import token_rows
from symattn.models.auditing.dependence.in_float64 import doubled, lifted
from symattn.models.auditing.dependence.mixing import within
from symattn.models.auditing.setting import Args, Kwargs, Module, Tensor

#: Above what stays in float32 where float64 is asked for, and below a rounding to 16 bits.
DIFFERENT = 2.0**-18
#: How many numbers the modules of a model may return in one run, all of which are stored in float64, in 2 GiB.
MAX_OUTPUTS = 2**28


@dataclass(frozen=True)
class RecordedPass:
    """One pass of a model: its tokens (b, n) or embeddings (b, n, d), its other arguments, and its output.

    ``key`` is the name of the argument that holds the tokens, and ``output`` that of the last token (b, 1, d), or None.
    """

    key: str
    tokens: Tensor
    others: Mapping[str, Any]
    output: Tensor | None

    @property
    def length(self) -> int:
        """How many tokens the pass has."""
        return int(self.tokens.shape[1])


@dataclass(frozen=True)
class PassDifference:
    """A module whose output for a token differs between two runs, said ``where`` and of which ``other`` one.

    ``size`` is the difference as a fraction of the largest output, ``received`` says that its inputs are the same, and
    ``moved`` that it receives other positions.
    """

    module: str
    kind: str
    token: int
    size: float
    received: bool
    moved: bool = False
    where: str = "in decoding from the cache"
    other: str = "in one pass of all tokens"

    @property
    def words(self) -> str:
        """The difference in words."""
        same = ", though it receives the same" if self.received else ""
        same = ": it receives other positions" if self.moved else same
        return (
            f"{self.module} ({self.kind}): {self.where}, its output of token {self.token} differs by"
            f" {self.size:.2g} of its largest number from that {self.other}{same}"
        )


@dataclass(frozen=True)
class ModuleOutputs:
    """The output of one module in one pass as (b, n, columns), and what it received.

    ``received`` is the first array of tokens, or None, and ``places`` are integers with one number for each token.
    """

    name: str
    kind: str
    gave: Tensor
    received: Tensor | None
    places: tuple[Tensor, ...]


def explain_too_many_outputs(root: Module, tokens: int) -> str:
    """Return why the outputs of all modules for so many tokens cannot be stored; "" if they can.

    About as many columns as its parameters have rows are returned for each token.
    """
    columns = sum(p.shape[0] for p in root.parameters() if p.ndim in (1, 2))
    if tokens * columns <= MAX_OUTPUTS:
        return ""
    return f"the outputs of its modules for {tokens} tokens are too many to compare in float64"


def run_with_outputs(
    wide: Module, paths: Mapping[Module, str], one: RecordedPass, more: Mapping[str, Any]
) -> tuple[list[ModuleOutputs], Any]:
    """Run the copy, and return the outputs of its modules in the order of their ends, and what it returned."""
    outputs_of_modules: list[ModuleOutputs] = []
    tokens = token_rows.Tokens(*one.tokens.shape[:2])

    def see(module: Module, args: Args, kwargs: Kwargs, out: Any) -> None:
        # What has no axis of tokens cannot be compared token by token.
        gave = tokens.flat(token_rows.first(out))
        if gave is None:
            return
        arrays = [x for x in (*args, *kwargs.values()) if hasattr(x, "shape")]
        read = map(tokens.flat, arrays)
        received = next((x for x in read if x is not None), None)
        integers = (x for x in arrays if x.ndim and not (x.is_floating_point() or x.is_complex()))
        places = tuple(x for x in integers if x.shape[-1] == tokens.n)
        outputs_of_modules.append(
            ModuleOutputs(paths[module], type(module).__name__, gave, received, places)
        )

    arguments = {one.key: one.tokens, **one.others}
    with lifted(), _hooked(paths, see):
        out = wide(**doubled(arguments), **more)
    return outputs_of_modules, out


@contextmanager
def _hooked(modules: Mapping[Module, str], see: Callable[..., None]) -> Iterator[None]:
    handles = [one.register_forward_hook(see, with_kwargs=True) for one in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def find_first_difference(
    runs: Iterable[tuple[int, Sequence[ModuleOutputs]]],
    whole: Sequence[ModuleOutputs],
    real: Tensor,
) -> PassDifference | None:
    """Return the first module whose output differs from that in ``whole``; one that receives the same comes first.

    Each run is of the tokens from a place on. ``real`` (b, n) says which tokens are no padding.
    """
    turns = _by_name_and_turn(whole)
    for start, outputs in runs:
        differences = list[PassDifference]()
        for (name, turn), output in _by_name_and_turn(outputs).items():
            # A module that runs more often with more tokens, such as an expert, has no counterpart.
            if (name, turn) not in turns:
                continue
            right = turns[name, turn]
            rows = real[:, start : start + output.gave.shape[1]]
            sizes = _relative_differences(output.gave, right.gave, start, rows)
            if sizes is None or float(sizes.max()) <= DIFFERENT:
                continue
            token = start + int(sizes.max(0).values.argmax())
            moved = _receives_other_places(output, right, start)
            received = not moved and _receives_same(output, right, start, rows)
            size = float(sizes.max())
            difference = PassDifference(name, output.kind, token, size, received, moved)
            differences.append(difference)
            # With the same input the module itself differs; others may only pass a difference on.
            if received or moved:
                return difference
        if differences:
            return _innermost_first(differences)
    return None


def _innermost_first(differences: Sequence[PassDifference]) -> PassDifference:
    """Return the first difference, in a module that holds none of the others."""
    for one in differences:
        # A module differs if one within it does, so that only the inner one tells the place.
        inner = (other for other in differences if other.module != one.module)
        if not any(within(other.module, one.module) for other in inner):
            return one
    return differences[0]


def _receives_same(one: ModuleOutputs, right: ModuleOutputs, start: int, rows: Tensor) -> bool:
    """Return whether a module received the same array for these tokens in both runs."""
    if one.received is None or right.received is None:
        return False
    sizes = _relative_differences(one.received, right.received, start, rows)
    return sizes is not None and float(sizes.max()) <= DIFFERENT


def _receives_other_places(one: ModuleOutputs, right: ModuleOutputs, start: int) -> bool:
    """Return whether a module received other positions, or other integers, for these tokens."""
    for step, whole in zip(one.places, right.places, strict=False):
        part = whole[..., start : start + step.shape[-1]]
        if part.shape == step.shape and bool((part != step).any()):
            return True
    return False


def _by_name_and_turn(outputs: Sequence[ModuleOutputs]) -> dict[tuple[str, int], ModuleOutputs]:
    """Return outputs by the name of their module, and by how many times it ran before."""
    result: dict[tuple[str, int], ModuleOutputs] = {}
    counts: dict[str, int] = {}
    for one in outputs:
        turn = counts.get(one.name, 0)
        counts[one.name] = turn + 1
        result[one.name, turn] = one
    return result


def _relative_differences(step: Tensor, whole: Tensor, start: int, rows: Tensor) -> Tensor | None:
    """Return how far each token (b, n) of a pass differs from the same in all; None if the shapes do not fit."""
    part = whole[:, start : start + step.shape[1]]
    if part.shape != step.shape or not part.numel():
        return None
    # Relative to the largest number, so that small entries may differ by its roundings.
    size = float(whole.nan_to_num(0.0, 0.0, 0.0).abs().max())
    differences = (step - part).nan_to_num(0.0, 0.0, 0.0).abs().amax(-1).cpu() / (size or 1.0)
    return differences.masked_fill(~rows, 0.0)
