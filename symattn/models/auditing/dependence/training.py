"""The probe of training: a pass in training is run again in float64, and compared with one in evaluation.

A copy of the model runs without dropout and other noise, so that both must give the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from symattn.models.auditing.dependence.decoding import MAX_PARAMETERS, real_tokens
from symattn.models.auditing.dependence.in_float64 import copied_in_float64
from symattn.models.auditing.dependence.pass_outputs import (
    PassDifference,
    RecordedPass,
    explain_too_many_outputs,
    find_first_difference,
    run_with_outputs,
)
from symattn.models.auditing.setting import Module
from symattn.programs.refusing import one_line

#: Numbers of modules and configurations by which a pass in training is random.
_OF_CHANCE = re.compile(r"drop|jitter|noise")


@dataclass(frozen=True)
class Training:
    """The finding of a probe: the first module that does something else in training, or why none was compared."""

    difference: PassDifference | None = None
    reason: str = ""
    RECORD = "difference, reason"

    @property
    def faults(self) -> list[str]:
        """Return the difference in words, if there is one."""
        return [] if self.difference is None else [self.difference.words]

    @property
    def coverage(self) -> str:
        """Return why nothing was compared; "" if it was."""
        return f"training not compared with evaluation: {self.reason}" if self.reason else ""


def probe_training(root: Module, names: Mapping[Module, str], recorded: RecordedPass) -> Training:
    """Return whether a pass of a model in training, without its noise, gives what one in evaluation gives."""
    import torch

    # Only models of Transformers are meant to do the same in both.
    if getattr(root, "config", None) is None:
        return Training()
    if any(getattr(part, "running_mean", None) is not None for part in root.modules()):
        return Training(reason="a norm over the batch is in training")
    if sum(p.numel() for p in root.parameters()) > MAX_PARAMETERS:
        return Training(reason=f"the model has more than {MAX_PARAMETERS} parameters")
    if getattr(root.config, "is_encoder_decoder", False):
        return Training(reason="the model has an encoder")
    if reason := explain_too_many_outputs(root, recorded.tokens.shape[:2].numel()):
        return Training(reason=reason)
    try:
        with torch.no_grad(), torch.random.fork_rng():
            return _compare_with_evaluation(root, names, recorded)
    # The code of a model may raise anything when it runs again.
    except Exception as error:
        return Training(reason=f"a repeated pass raised {one_line(error)[:200]}")


def _compare_with_evaluation(
    root: Module, names: Mapping[Module, str], recorded: RecordedPass
) -> Training:
    wide = copied_in_float64(root)
    copies = zip(root.modules(), wide.modules(), strict=True)
    paths = {wide_one: names[one] for one, wide_one in copies if one in names}
    _silence(wide)
    more = {"use_cache": False} if hasattr(root.config, "use_cache") else {}
    first, _ = run_with_outputs(wide, paths, recorded, more)
    second, _ = run_with_outputs(wide, paths, recorded, more)
    real = real_tokens(recorded)
    if find_first_difference([(0, first)], second, real) is not None:
        return Training(reason="its passes in training are random")
    sizes = _sizes_of_weights(wide)
    evaluated, _ = run_with_outputs(wide.eval(), paths, recorded, more)
    difference = find_first_difference([(0, first)], evaluated, real)
    if difference is None:
        return Training()
    # RWKV scales its inner numbers in evaluation alone, before norms.
    if _sizes_of_weights(wide) != sizes:
        return Training(reason="its weights are others in evaluation")
    return Training(
        replace(difference, where="in training", other="in evaluation, without dropout")
    )


def _sizes_of_weights(wide: Module) -> list[str]:
    # As text, since a number that is none equals itself then.
    return [str(float(p.abs().sum())) for p in wide.parameters()]


def _silence(wide: Module) -> None:
    """Set rates of dropout and of other noise to 0, in all modules and their configurations."""
    import torch

    for part in wide.modules():
        if isinstance(part, torch.nn.modules.dropout._DropoutNd):
            part.p = 0.0
        for owner in (part, getattr(part, "config", None)):
            for name, value in list(getattr(owner, "__dict__", {}).items()):
                if isinstance(value, float) and _OF_CHANCE.search(name):
                    setattr(owner, name, 0.0)
