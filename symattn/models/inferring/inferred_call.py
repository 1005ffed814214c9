"""Infer the specification of one traced call of attention, and forms for which ``Attention`` has no field."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import numpy as np

from symattn.attention.positions.position_fields import Rotary
from symattn.attention.spec import Attention
from symattn.attention.temperatures import Temperature
from symattn.models.auditing import call_judge
from symattn.models.auditing.setting import CallSetting, Floats, Mask
from symattn.models.inferring import column_sources, tiny_models, traced_model

#: Largest error of a call in float64 that its specification explains, as a fraction of its largest output.
EXPLAINED = 2.0**-38
_ROUND = 2.0**-30
#: What is said of queries that are scaled by their positions, from some position on.
FACTOR_OF_POSITION = "queries: times a factor of the position"
#: What is said of a rotation whose rates nothing explains.
UNKNOWN_RATES = "rates that are no powers of a base"
#: What is said of a rotation whose fields give scaled rates.
UNSCALED_RATES = "rates without the scaling of the fields"
#: What is said of a rotation whose rates are others at far positions.
CHANGED_RATES = "rates that change with the number of tokens"
#: Bases that differ by less are equal: each is fitted to the rates of a run.
CLOSE_BASE = 2.0**-16
_ROLES = {"q": "queries", "k": "keys", "v": "values"}
Window = int | tuple[int, int] | str | None


@dataclass
class CallFacts:
    """Facts that were read off one call of a layer's attention.

    ``called_scale`` is the scale of the call itself, ``scale`` that of the scores, with factors of queries and keys.
    ``across`` holds which of q and k are normalised over all heads together.
    ``late`` holds which of q and k are normalised after their rotation, ``gate`` what multiplies the output of heads,
    ``factors`` what multiplies the query of each token where tokens differ. ``chosen`` is the most keys that a query
    sees where keys are chosen by what they hold.
    ``chain`` holds the steps of q, k and v from their projections, last first. ``missing`` lists forms without a field
    in ``Attention``, ``unknown`` what was not explained.
    """

    name: str
    heads: int = 0
    kv_heads: int = 0
    d_k: int = 0
    scale: float = 0.0
    called_scale: float = 0.0
    softcap: float | None = None
    sink: bool = False
    bias: bool = False
    causal: bool = False
    window: Window = None
    chosen: int | None = None
    rotation: Any = None
    base: float | None = None
    scaling: Any = None
    norm: str = ""
    eps: float = 0.0
    across: set[str] = field(default_factory=set)
    late: set[str] = field(default_factory=set)
    value_norm: str = ""
    value_eps: float = 0.0
    gate: str = ""
    factors: Floats | None = None
    temperature: Temperature | None = None
    chain: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    @property
    def scaled_before(self) -> bool | None:
        """Return whether queries or keys have the whole scale before the call; None if they have a part of it."""
        if abs(self.scale - self.called_scale) <= _ROUND * abs(self.scale):
            return False
        return True if self.called_scale == 1 else None

    @property
    def plain_mask(self) -> bool:
        """Return whether the mask is one by positions."""
        return self.window != "chosen"

    def numbers(self) -> dict[str, Any]:
        """Return the numbers that fields of a configuration may give."""
        return {
            "heads": self.heads,
            "kv_heads": self.kv_heads,
            "scale": self.scale,
            "softcap": self.softcap,
            "causal": self.causal,
            "window": self.window,
            "chosen": self.chosen,
            "base": self.base,
            "rotated": self.rotation.width if self.rotation else None,
            "temperature": self._slope,
            "temperature_rate": self.temperature.rate if self.temperature else None,
            "temperature_start": self.temperature.start if self.temperature else None,
            "eps": self.eps if self.norm else None,
            "value_eps": self.value_eps if self.value_norm else None,
        }

    @property
    def _slope(self) -> float | str | None:
        """Return the field ``temperature`` of the specification."""
        if self.temperature is None:
            return None
        slope = self.temperature.slope
        return "log" if slope is None else float(slope)

    def spec(self) -> Attention | None:
        """Return the specification; None if a form has no field, or something was not explained."""
        if self.missing or self.unknown:
            return None
        fields: dict[str, Any] = {
            "causal": self.causal,
            "heads": self.heads,
            "softcap": self.softcap,
        }
        if self.kv_heads != self.heads:
            fields["kv_heads"] = self.kv_heads
        if abs(self.scale - self.d_k**-0.5) > _ROUND * self.scale:
            fields["scale"] = _strip_computation_rounding(self.scale)
        if isinstance(self.window, str):
            fields["block"] = int(self.window.removeprefix("blocks of "))
        elif self.window is not None:
            fields["window"] = self.window
        if self.rotation is not None:
            width = None if self.rotation.width == self.d_k else self.rotation.width
            assert self.base is not None
            fields["position"] = Rotary(
                base=_strip_computation_rounding(self.base), width=width, layout=self.rotation.pairs,
                scaling=self.scaling,
            )  # fmt: skip
        if self.temperature is not None:
            fields |= {"temperature": self._slope, "temperature_rate": self.temperature.rate}
            fields["temperature_start"] = self.temperature.start
        if self.norm:
            fields |= {"qk_norm": self.norm, "eps": self.eps}
        if self.across:
            fields["qk_norm_over"] = "heads"
        if self.late:
            fields["qk_norm_place"] = "after"
        if self.value_norm:
            fields |= {"value_norm": self.value_norm, "eps": self.value_eps}
        if self.gate:
            fields["output_gate"] = True
        if self.sink:
            fields["sink"] = "given"
        return Attention(bias=self.bias, **fields)


def _strip_computation_rounding(x: float) -> int | float:
    """Return a number without the rounding of its computation: an integer if it is one."""
    near = float(f"{x:.8g}")
    return int(near) if near.is_integer() else near


def mask_form(seen: Mask) -> tuple[bool, Window]:
    """Return whether a mask (n, n) is causal, and its window: an int, (left, right), blocks, None or ``chosen``."""
    places = np.arange(tiny_models.TOKENS)
    behind = places[:, None] - places[None]
    causal = not seen[behind < 0].any()
    # A causal mask cannot see ahead, and only the past counts.
    past = behind >= 0 if causal else np.ones((tiny_models.TOKENS, tiny_models.TOKENS), bool)
    if (seen == past).all():
        return causal, None
    # The farthest key that is seen gives the width.
    width = int(np.abs(behind)[seen].max()) + 1
    if (seen == past & (np.abs(behind) < width)).all():
        return causal, width if causal else (width - 1, width - 1)
    # Else blocks of any size, or a mask of another kind.
    for size in range(2, tiny_models.TOKENS):
        block = places // size
        in_block = block[:, None] == block[None]
        if (seen == past & in_block).all():
            return causal, f"blocks of {size}"
    return causal, "chosen"


def facts_of(run: traced_model.TracedRun, call: traced_model.TracedCall) -> CallFacts:
    """Return what a call computes, from the projections of its module to its output."""
    facts = CallFacts(call.name)
    if call.setting is None or call.out is None:
        facts.unknown.append(call.reason or "the call was not read")
        return facts
    setting = call.setting
    facts.heads, facts.kv_heads, facts.d_k = (
        setting.q.shape[1],
        setting.k.shape[1],
        setting.q.shape[-1],
    )
    facts.called_scale = float(setting.scale)
    facts.scale, facts.softcap, facts.sink = (
        float(setting.scale),
        setting.softcap,
        setting.sink is not None,
    )
    _explain_output(facts, setting, call.out)
    if setting.k.shape[2] != tiny_models.TOKENS:
        facts.missing.append("keys that are no tokens")
        return facts
    _explain_mask(facts, setting)
    sources = column_sources.ColumnSources(run, call)
    for role, array in (("q", setting.q), ("k", setting.k), ("v", setting.v)):
        try:
            origins = [sources.origin(head) for head in array[0]]
        except column_sources.UnknownOrigin:
            facts.unknown.append(f"where {_ROLES[role]} come from")
            continue
        _note_origin(facts, role, origins[0])
        _note_heads(facts, role, origins, array.shape[-1])
    after: list[str] = []
    facts.chain["o"] = sources.way_out(call.out, after) or ""
    # Attention has a field for sigmoids alone.
    facts.gate = next((form for form in after if form.startswith("output gate: sigmoid ")), "")
    facts.missing += [form for form in after if form != facts.gate]
    if not facts.chain["o"]:
        facts.unknown.append("what follows the call")
    _settle_rotation_and_norms(facts)
    return facts


def _explain_output(facts: CallFacts, setting: CallSetting, out: Floats) -> None:
    try:
        wanted = call_judge.output(setting)[0]
    except Exception:
        facts.unknown.append("the output of the call")
        return
    # A shape that differs has no error, and is not explained.
    error = np.inf
    if wanted.shape == out.shape:
        largest_error = np.abs(wanted - out).max()
        error = float(largest_error / np.abs(wanted).max())
    if not error <= EXPLAINED:
        facts.unknown.append(f"the output of the call, which differs by {error:.1g}")


def _explain_mask(facts: CallFacts, setting: CallSetting) -> None:
    allowed = (
        np.ones((1, 1, tiny_models.TOKENS, tiny_models.TOKENS), bool)
        if setting.allowed is None
        else setting.allowed
    )
    facts.causal, facts.window = mask_form(np.asarray(allowed[0, 0]))
    if facts.window == "chosen":
        facts.missing.append("keys are chosen")
        facts.chosen = int(allowed.sum(axis=-1).max())
    if (allowed != allowed[:1, :1]).any():
        facts.missing.append("a mask of each head")
    facts.bias = setting.bias is not None


def _note_origin(facts: CallFacts, role: str, origin: column_sources.ColumnOrigin) -> None:
    facts.chain[role] = " ← ".join(origin.steps)
    words = _ROLES[role]
    facts.missing += [f"{words}: {form}" for form in origin.special]
    if not origin.own:
        facts.missing.append(f"{words} of another module")
    if role == "v":
        facts.missing += [f"values: times {origin.factor:.6g}"] * (origin.factor != 1)
        facts.missing += ["rotated values"] * (origin.turn is not None)
        facts.missing += ["values: norm over all heads"] * origin.across
        if origin.norm == "rms":
            facts.value_norm, facts.value_eps = origin.norm, origin.eps
        elif origin.norm:
            facts.missing.append("norm of values")
        return
    facts.scale *= origin.factor  # a factor of queries or keys is one of the scores
    if role == "q":
        facts.factors = origin.factors
    if origin.late:
        facts.late.add(role)
    if origin.across:
        facts.across.add(role)
    if origin.norm and origin.norm != "unknown":
        facts.norm, facts.eps = origin.norm, origin.eps
    elif origin.norm:
        facts.unknown.append(f"the norm of {words}")
    facts.rotation = origin.turn or facts.rotation


def _factor_in_words(origin: column_sources.ColumnOrigin) -> str:
    return f"times {origin.factor:.6g}"


def _note_heads(
    facts: CallFacts, role: str, origins: Sequence[column_sources.ColumnOrigin], width: int
) -> None:
    """Note where heads are projected, if not side by side from the first column on, and heads that differ."""
    factors = np.array([one.factor for one in origins])
    kinds = {tuple(step for step in one.steps if step != _factor_in_words(one)) for one in origins}
    if len(kinds) > 1 or np.ptp(factors) > column_sources.EQUAL * abs(factors[0]):
        facts.missing.append(f"heads of {_ROLES[role]} that differ in their steps")
        return
    places = [one.first for one in origins]
    gaps = {int(gap) for gap in np.diff(places)}
    words = []
    if len(gaps) > 1 or (gaps and min(gaps) < 0):
        words.append(f"heads from columns {', '.join(map(str, places))} on")
    else:
        words += [f"from column {places[0]} on"] * (places[0] > 0)
        words += [f"heads {gap} columns apart" for gap in gaps - {width, 0}]
    orders = list(dict.fromkeys(filter(None, (one.order for one in origins))))
    if orders:
        # The first head is written out; a checksum tells the orders of the others apart.
        others = crc32(repr([one.order for one in origins]).encode())
        more = f"; … of order {others:08x}" if len(orders) > 1 else ""
        words.append(f"in another order: {orders[0]}{more}")
    if words:
        projection = origins[0].projection
        steps = facts.chain[role].split(" ← ")
        where = f"{projection} ({', '.join(words)})"
        facts.chain[role] = " ← ".join(where if step == projection else step for step in steps)


def _settle_rotation_and_norms(facts: CallFacts) -> None:
    """Read off the base, and note forms of the rotation and of norms that no field describes."""
    turn = facts.rotation
    if turn is not None:
        # A base that no frequencies fit is none.
        facts.base = turn.base()
        forms = {
            UNKNOWN_RATES: facts.base is None,
            "rotation backwards": turn.sign < 0,
        }
        facts.missing += [form for form, holds in forms.items() if holds]
    # With something unknown, the other norm may just not have been recognised.
    normed = [role for role in "qk" if "norm over" in facts.chain.get(role, "")]
    if len(normed) == 1 and not facts.unknown:
        facts.missing.append(f"a norm of {_ROLES[normed[0]]} alone")
    turned = [role for role in "qk" if "rotation" in facts.chain.get(role, "")]
    if len(turned) == 1 and not facts.unknown:
        facts.missing.append(f"a rotation of {_ROLES[turned[0]]} alone")
    # Behind the rotation a norm acts on rotated columns.
    if len(facts.late) == 1 or (facts.late and turn is None):
        facts.missing += [f"norm of {_ROLES[role]} after the rotation" for role in facts.late]
    # The one head of keys is all of them.
    if facts.across == {"q"} and facts.kv_heads == 1:
        facts.across.add("k")
    if len(facts.across) == 1 and not facts.unknown:
        facts.missing += [f"{_ROLES[role]}: norm over all heads" for role in facts.across]
    if facts.value_norm and facts.norm and facts.value_eps != facts.eps:
        facts.missing.append("norm of values with an ε of its own")
    facts.missing = list(dict.fromkeys(facts.missing))
