"""symattn: why attention is what it is, whether it is always so, and whether code computes it.

The public names are those of ``__all__``; they are imported when they are first used.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from symattn.arrays import kind
    from symattn.arrays.precision import Precision
    from symattn.arrays.rounded import rounded
    from symattn.attention.derivative import jvp, vjp
    from symattn.attention.enclosed import enclose, enclose_rows
    from symattn.attention.latent import Latent
    from symattn.attention.layers.block import Block
    from symattn.attention.layers.evaluation import Evaluation, evaluate
    from symattn.attention.layers.transformer import Transformer
    from symattn.attention.positions.fields import Alibi, Buckets, Disentangled, Rotary, Shaw, TransformerXL
    from symattn.attention.positions.rotary_fields import (
        LinearScaling,
        LongRopeScaling,
        NTKScaling,
        ProportionalScaling,
        YarnScaling,
    )
    from symattn.attention.presets import like
    from symattn.attention.spec import Attention
    from symattn.attention.streaming.by_tiles import by_tiles
    from symattn.bounds.domain import Domain
    from symattn.derivations import derive
    from symattn.derivations.claims import claim
    from symattn.derivations.exercises import exercises
    from symattn.derivations.explore import explore
    from symattn.derivations.walks import walk
    from symattn.document.errors import InputError, MissingExtra, Refused, SymattnError, Undecided
    from symattn.document.evidence import Evidence, Grade, Verdict
    from symattn.document.model import Document
    from symattn.drawing import draw
    from symattn.models.auditing.audit import audit
    from symattn.models.comparing.functions import compare
    from symattn.models.comparing.generation import generation
    from symattn.programs.arithmetic import arithmetic
    from symattn.programs.loading import CannotRun
    from symattn.programs.summation import summation
    from symattn.programs.verify import verify
    from symattn.proof.theorem import theorem
    from symattn.proving import prove
    from symattn.verification.definitions.caches import Cached
    from symattn.verification.definitions.gradients import Gradient
    from symattn.verification.definitions.linear import LinearAttention
    from symattn.verification.definitions.merging import Merge
    from symattn.verification.definitions.norms import LayerNorm, RMSNorm
    from symattn.verification.definitions.weights import Softmax
    from symattn.verification.report import Report
    from symattn.verification.tolerances.tolerance import bound

__version__ = "0.1.0"

_WHERE = {
    "Alibi": "symattn.attention.positions.fields",
    "Attention": "symattn.attention.spec",
    "Block": "symattn.attention.layers.block",
    "Buckets": "symattn.attention.positions.fields",
    "Cached": "symattn.verification.definitions.caches",
    "CannotRun": "symattn.programs.loading",
    "Disentangled": "symattn.attention.positions.fields",
    "Document": "symattn.document.model",
    "Domain": "symattn.bounds.domain",
    "Evaluation": "symattn.attention.layers.evaluation",
    "Evidence": "symattn.document.evidence",
    "Gradient": "symattn.verification.definitions.gradients",
    "Grade": "symattn.document.evidence",
    "InputError": "symattn.document.errors",
    "Latent": "symattn.attention.latent",
    "LayerNorm": "symattn.verification.definitions.norms",
    "LinearAttention": "symattn.verification.definitions.linear",
    "LinearScaling": "symattn.attention.positions.rotary_fields",
    "LongRopeScaling": "symattn.attention.positions.rotary_fields",
    "Merge": "symattn.verification.definitions.merging",
    "MissingExtra": "symattn.document.errors",
    "NTKScaling": "symattn.attention.positions.rotary_fields",
    "Precision": "symattn.arrays.precision",
    "ProportionalScaling": "symattn.attention.positions.rotary_fields",
    "RMSNorm": "symattn.verification.definitions.norms",
    "Refused": "symattn.document.errors",
    "Report": "symattn.verification.report",
    "Rotary": "symattn.attention.positions.fields",
    "Softmax": "symattn.verification.definitions.weights",
    "Shaw": "symattn.attention.positions.fields",
    "SymattnError": "symattn.document.errors",
    "Transformer": "symattn.attention.layers.transformer",
    "TransformerXL": "symattn.attention.positions.fields",
    "Undecided": "symattn.document.errors",
    "Verdict": "symattn.document.evidence",
    "YarnScaling": "symattn.attention.positions.rotary_fields",
    "arithmetic": "symattn.programs.arithmetic",
    "audit": "symattn.models.auditing.audit",
    "bound": "symattn.verification.tolerances.tolerance",
    "by_tiles": "symattn.attention.streaming.by_tiles",
    "claim": "symattn.derivations.claims",
    "compare": "symattn.models.comparing.functions",
    "derive": "symattn.derivations",
    "draw": "symattn.drawing",
    "enclose": "symattn.attention.enclosed",
    "enclose_rows": "symattn.attention.enclosed",
    "explore": "symattn.derivations.explore",
    "evaluate": "symattn.attention.layers.evaluation",
    "exercises": "symattn.derivations.exercises",
    "generation": "symattn.models.comparing.generation",
    "jvp": "symattn.attention.derivative",
    "kind": "symattn.arrays",
    "like": "symattn.attention.presets",
    "prove": "symattn.proving",
    "rounded": "symattn.arrays.rounded",
    "summation": "symattn.programs.summation",
    "theorem": "symattn.proof.theorem",
    "verify": "symattn.programs.verify",
    "vjp": "symattn.attention.derivative",
    "walk": "symattn.derivations.walks",
}

__all__ = [
    "Alibi",
    "Attention",
    "Block",
    "Buckets",
    "Cached",
    "CannotRun",
    "Disentangled",
    "Document",
    "Domain",
    "Evaluation",
    "Evidence",
    "Grade",
    "Gradient",
    "InputError",
    "Latent",
    "LayerNorm",
    "LinearAttention",
    "LinearScaling",
    "LongRopeScaling",
    "Merge",
    "MissingExtra",
    "NTKScaling",
    "Precision",
    "ProportionalScaling",
    "RMSNorm",
    "Refused",
    "Report",
    "Rotary",
    "Shaw",
    "Softmax",
    "SymattnError",
    "Transformer",
    "TransformerXL",
    "Undecided",
    "Verdict",
    "YarnScaling",
    "arithmetic",
    "audit",
    "bound",
    "by_tiles",
    "claim",
    "compare",
    "derive",
    "draw",
    "enclose",
    "enclose_rows",
    "evaluate",
    "exercises",
    "explore",
    "generation",
    "jvp",
    "kind",
    "like",
    "prove",
    "rounded",
    "summation",
    "theorem",
    "verify",
    "vjp",
    "walk",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'symattn' has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    value = getattr(import_module(_WHERE[name]), name)
    if isinstance(value, FunctionType):
        from symattn.document.keywords import answering  # the import of symattn alone imports nothing of it

        value = answering(value)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
