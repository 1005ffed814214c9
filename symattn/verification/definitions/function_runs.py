"""Mistakes that are functions of a definition's inputs: how they are run in float64, and bounded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from symattn.arrays.precision import Precision
from symattn.bounds.case_result import CaseResult, Part, largest
from symattn.bounds.mistake import Compute, Mistake
from symattn.bounds.reference import float64_outputs, outputs_in
from symattn.verification.definitions import definition_judge, definition_mistakes
from symattn.verification.diagnosis import parts, screening
from symattn.verification.diagnosis.causes import KEPT, Outputs

if TYPE_CHECKING:
    from symattn.verification.definitions.definition_subject import Definition

_LEGAL = 8  # multiple of the bound of the right definition


@dataclass
class FunctionRuns:
    """Runs of ways of computing a definition; small outputs are stored in ``computed``."""

    definition: Definition
    precision: Precision
    computed: screening.ComputedValues[Outputs]
    _known_of: dict[Any, Sequence[Mistake]] = field(default_factory=dict)
    _before_change: screening.ComputedValues[Outputs] = field(
        default_factory=screening.ComputedValues
    )

    # -- how they are computed, see ``causes.Search`` ------------------------------------------------------------------
    def run(self, judged: CaseResult, way: Compute) -> list[np.ndarray]:
        """Return the outputs by a way of computing, in float64."""
        if isinstance(way, definition_mistakes.OutputsChanged):
            before = self._outputs_before_change(judged, way.run)
            with np.errstate(all="ignore"):
                return [np.asarray(y, dtype=np.float64) for y in way.change([*before])]
        return float64_outputs(partial(self.definition.run, way), judged.case.inputs)

    def _outputs_before_change(self, judged: CaseResult, way: Compute) -> list[np.ndarray]:
        """Return the outputs of a way that mistakes change, which is run once for all of them."""
        small = judged.case.size <= KEPT
        # Another store for large cases, of which each store has the latest alone.
        store = self.computed if small else self._before_change
        outputs = store.once((judged, way), lambda: self.run(judged, way), small)
        # None is stored in the place of outputs that a mistake cannot give: the run raises why.
        return self.run(judged, way) if outputs is None else outputs

    def run_in(
        self, judged: CaseResult, way: Compute, dtype: type[np.floating[Any]]
    ) -> list[np.ndarray]:
        """Return the outputs by a way of computing in another format."""
        return outputs_in(dtype, partial(self.definition.run, way), judged.case.inputs)

    def on_residues(self, inputs: dict[str, Any], mistake: Mistake) -> Sequence[Any]:
        """Return the outputs of a mistake on residues."""
        return self.definition.run(mistake.run, inputs)

    def in_part(self, way: Compute, part: parts.OutputPart, names: frozenset[str]) -> Compute:
        """Return the way in a part of each output alone: both outputs are computed, and joined."""
        definition = self.definition

        def run(**keywords: Any) -> tuple[Any, ...]:
            wrong, right = (definition.run(of, keywords) for of in (way, definition.ways[0]))
            return tuple(part.joined(x, y) for x, y in zip(wrong, right, strict=True))

        return run

    def combined(self, first: Mistake, second: Mistake) -> Sequence[Mistake]:
        """Return both mistakes at once; if both change one input, either may come first."""
        same = first.reads and first.reads == second.reads
        orders = ((first, second), (second, first)) if same else ((first, second),)
        return [
            m
            for order in orders
            if (m := definition_mistakes.both(*order, self._mistakes_of)) is not None
        ]

    def _mistakes_of(self, spec: Any) -> Sequence[Mistake]:
        if spec not in self._known_of:
            # Definitions are slow to build, and pairs ask for them often.
            remade = self.definition.remade
            self._known_of[spec] = remade(spec).mistakes if remade is not None else ()
        return self._known_of[spec]

    # -- by what they are judged ---------------------------------------------------------------------------------------
    def rounding(
        self, judged: CaseResult, mistake: Mistake, part: Part, wrong: np.ndarray
    ) -> np.ndarray:
        """Return several times the definition's bound, scaled up for larger numbers, plus rounding of the result."""
        allowed = part.expected.allowed
        most = np.where(np.isfinite(allowed), allowed, 0).max(initial=0.0)
        # Another shape has no bound by entry: the largest one stands in.
        legal = allowed if allowed.shape == wrong.shape else most
        relative = max(
            most / max(largest(part.expected.near), 1e-300),
            float(self.precision.returned.u),
        )
        return np.asarray(_LEGAL * (legal + relative * np.abs(wrong)))

    def reproduces(
        self, judged: CaseResult, mistake: Mistake, among: frozenset[int] | None
    ) -> bool | None:
        """See ``definition_judge.explains``."""
        return definition_judge.explains(self.definition, self.precision, judged, mistake, among)
