"""symattn: why attention is what it is, whether it is always so, and whether code computes it.

The public names are listed in ``__all__``; they are imported on first use.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from symattn.arrays import kind as kind
    from symattn.arrays.precision import Precision as Precision
    from symattn.arrays.rounded import rounded as rounded
    from symattn.attention.derivative import jvp as jvp
    from symattn.attention.derivative import vjp as vjp
    from symattn.attention.enclosed import enclose as enclose
    from symattn.attention.enclosing.rows import enclose_rows as enclose_rows
    from symattn.attention.latent import Latent as Latent
    from symattn.attention.layers.block import Block as Block
    from symattn.attention.layers.evaluation import Evaluation as Evaluation
    from symattn.attention.layers.evaluation import evaluate as evaluate
    from symattn.attention.layers.transformer import Transformer as Transformer
    from symattn.attention.positions.position_fields import Alibi as Alibi
    from symattn.attention.positions.position_fields import Buckets as Buckets
    from symattn.attention.positions.position_fields import Disentangled as Disentangled
    from symattn.attention.positions.position_fields import Rotary as Rotary
    from symattn.attention.positions.position_fields import Shaw as Shaw
    from symattn.attention.positions.position_fields import TransformerXL as TransformerXL
    from symattn.attention.positions.rotary_fields import LinearScaling as LinearScaling
    from symattn.attention.positions.rotary_fields import LongRopeScaling as LongRopeScaling
    from symattn.attention.positions.rotary_fields import NTKScaling as NTKScaling
    from symattn.attention.positions.rotary_fields import ProportionalScaling as ProportionalScaling
    from symattn.attention.positions.rotary_fields import YarnScaling as YarnScaling
    from symattn.attention.presets import like as like
    from symattn.attention.spec import Attention as Attention
    from symattn.attention.streaming.by_tiles import by_tiles as by_tiles
    from symattn.bounds.domain import Domain as Domain
    from symattn.derivations import derive as derive
    from symattn.derivations.claims import claim as claim
    from symattn.derivations.exercises import exercises as exercises
    from symattn.derivations.explore import explore as explore
    from symattn.derivations.walks import walk as walk
    from symattn.document.errors import CannotRun as CannotRun
    from symattn.document.errors import InputError as InputError
    from symattn.document.errors import MissingExtra as MissingExtra
    from symattn.document.errors import Refused as Refused
    from symattn.document.errors import SymattnError as SymattnError
    from symattn.document.errors import Undecided as Undecided
    from symattn.document.evidence import Evidence as Evidence
    from symattn.document.evidence import Grade as Grade
    from symattn.document.evidence import Verdict as Verdict
    from symattn.document.model import Document as Document
    from symattn.drawing import draw as draw
    from symattn.models.auditing.audit import audit as audit
    from symattn.models.comparing.compared_functions import compare as compare
    from symattn.models.comparing.generation import generation as generation
    from symattn.programs.arithmetic import arithmetic as arithmetic
    from symattn.programs.arithmetic import summation as summation
    from symattn.programs.verify import verify as verify
    from symattn.proof.theorem import theorem as theorem
    from symattn.proving import prove as prove
    from symattn.verification.definitions.caches import Cached as Cached
    from symattn.verification.definitions.gradients import Gradient as Gradient
    from symattn.verification.definitions.linear import LinearAttention as LinearAttention
    from symattn.verification.definitions.merging import Merge as Merge
    from symattn.verification.definitions.norms import LayerNorm as LayerNorm
    from symattn.verification.definitions.norms import RMSNorm as RMSNorm
    from symattn.verification.definitions.weights import Softmax as Softmax
    from symattn.verification.report import Report as Report
    from symattn.verification.tolerances.tolerance import bound as bound

__version__ = "0.1.0"

#: The public names by module of symattn.
_NAMES = {
    "arrays": "kind",
    "arrays.precision": "Precision",
    "arrays.rounded": "rounded",
    "attention.derivative": "jvp vjp",
    "attention.enclosed": "enclose",
    "attention.enclosing.rows": "enclose_rows",
    "attention.latent": "Latent",
    "attention.layers.block": "Block",
    "attention.layers.evaluation": "Evaluation evaluate",
    "attention.layers.transformer": "Transformer",
    "attention.positions.position_fields": "Alibi Buckets Disentangled Rotary Shaw TransformerXL",
    "attention.positions.rotary_fields": "LinearScaling LongRopeScaling NTKScaling ProportionalScaling YarnScaling",
    "attention.presets": "like",
    "attention.spec": "Attention",
    "attention.streaming.by_tiles": "by_tiles",
    "bounds.domain": "Domain",
    "derivations": "derive",
    "derivations.claims": "claim",
    "derivations.exercises": "exercises",
    "derivations.explore": "explore",
    "derivations.walks": "walk",
    "document.errors": "CannotRun InputError MissingExtra Refused SymattnError Undecided",
    "document.evidence": "Evidence Grade Verdict",
    "document.model": "Document",
    "drawing": "draw",
    "models.auditing.audit": "audit",
    "models.comparing.compared_functions": "compare",
    "models.comparing.generation": "generation",
    "programs.arithmetic": "arithmetic summation",
    "programs.verify": "verify",
    "proof.theorem": "theorem",
    "proving": "prove",
    "verification.definitions.caches": "Cached",
    "verification.definitions.gradients": "Gradient",
    "verification.definitions.linear": "LinearAttention",
    "verification.definitions.merging": "Merge",
    "verification.definitions.norms": "LayerNorm RMSNorm",
    "verification.definitions.weights": "Softmax",
    "verification.report": "Report",
    "verification.tolerances.tolerance": "bound",
}
_WHERE = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'symattn' has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    value = getattr(import_module(f"symattn.{_WHERE[name]}"), name)
    if isinstance(value, FunctionType):
        from symattn.document.keywords import answering  # not imported by ``import symattn`` alone

        value = answering(value)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
