"""A layer of a Transformer in steps: those of ``Block``, among them those of its attention."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

from symattn.attention.flow import Step
from symattn.attention.layers.block import Block, own_arrays, sublayers
from symattn.attention.letters_of_attention import ARRAYS
from symattn.attention.spec import Attention
from symattn.verification.definitions.attention_steps import FlowWithAttention, mark_as_inner

PREFIX = "attention."  # of the attention's arrays
#: The inputs of a block by the names that its attention has for them: tokens and projections, and no masks.
INPUTS_OF_ATTENTION: Mapping[str, str] = {
    "x": "x",
    **{name: f"{PREFIX}{name}" for name in ("w_q", "w_k", "w_v", "w_o")},
}
_PARTS = {"attention": "attention", "mlp": "the feed-forward layer"}
#: Roles of steps that belong to a part, and words for their arrays.
_OF_PARTS = {
    "layer norm": "the norm of {}",
    "rms norm": "the norm of {}",
    "residual": "the residual around {}",
}


@dataclass(frozen=True)
class BlockFlow(FlowWithAttention):
    """The steps of a block without cross-attention, whose attention takes tokens and projections."""

    block: Block

    prefixes: ClassVar[tuple[str, ...]] = (PREFIX,)
    returned: ClassVar[tuple[str, ...]] = ("output",)
    #: The hidden arrays of the feed-forward layer are wider than the tokens.
    axes: ClassVar[Mapping[str, str]] = {
        "mlp.gate": "b n f",
        "mlp.up": "b n f",
        "mlp.output": "b n m",
    }

    @cached_property
    def letters(self) -> Mapping[str, str]:  # type: ignore[override]
        """See ``StatedFlow``: of all inputs."""
        own = {name: named.letter for name, named in own_arrays(self.block).items()}
        of_attention = {array: ARRAYS[n].letter for n, array in INPUTS_OF_ATTENTION.items()}
        return own | of_attention

    @cached_property
    def nouns(self) -> Mapping[str, str]:  # type: ignore[override]
        """See ``StatedFlow``: for norms and residuals, by the part that they belong to."""
        result, parts = dict[str, str](), [_PARTS[part] for part in sublayers(self.block)]
        for role, words in _OF_PARTS.items():
            # One norm and one residual a part, in the order of the parts.
            steps = [step for step in self.pipeline_of_all if step.role == role]
            result |= {s.name: words.format(part) for s, part in zip(steps, parts, strict=False)}
        return result

    @property
    def inner(self) -> Attention:
        """See ``FlowWithAttention``."""
        return self.block.attention

    @cached_property
    def taken(self) -> Mapping[str, str]:
        """See ``FlowWithAttention``: a norm before the attention makes the tokens that it reads."""
        steps = self.block.pipeline(self.letters)
        first = next(step for step in steps if step.name.startswith(PREFIX))
        return {**INPUTS_OF_ATTENTION, "x": first.of[0]}

    @property
    def eps(self) -> int | float | Fraction:
        """The ε of the norms."""
        return self.block.eps

    @property
    def activation(self) -> str | None:
        """The function between the projections of the feed-forward layer."""
        return self.block.activation

    @property
    def gated(self) -> bool:
        """True if the feed-forward layer has a gate."""
        return self.block.gated

    def state_steps(self, names: frozenset[str]) -> Iterator[Step]:
        """See ``StatedFlow``."""
        for step in self.block.pipeline(names & self.letters.keys()):
            name = step.name.removeprefix(PREFIX)
            yield step if name == step.name else mark_as_inner(step, name)
