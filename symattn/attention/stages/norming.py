"""Steps that normalise the rows of queries, keys, values or outputs, as records from which all else follows."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from symattn.attention.flow import Flow
from symattn.attention.letters_of_attention import ARRAYS
from symattn.attention.norms import NormKind, NormRecord
from symattn.attention.stages import tokens
from symattn.document.errors import InputError
from symattn.document.notation import WrittenNumber

# How formulas name each norm.
_FUNCTIONS = {"rms": "RMSNorm", "layer": "LayerNorm", "l2": "unit"}


def add_norm(
    flow: Flow,
    array: str,
    role: str,
    kind: NormKind,
    eps: Any = 0,
    *,
    gain: str = "",
    bias: str = "",
    over_heads: bool = False,
) -> None:
    """Add the step that makes ``array``, the norm of the array that has the ``role`` q, k, v or output, with ε.

    ``gain`` and ``bias`` name inputs. Their rows of ``ARRAYS`` say whether a call must have them, ``needed``, or may
    leave them out, ``optional``, and by their shapes whether each head has its own: ``d_v`` for all heads, ``[h] d_v``
    or ``h*d_v`` for each. ``over_heads``: the columns of all heads are normalised together, as h·d numbers, which gain
    and bias then have, too.

    The formulas, the error term and the known mistakes follow. Raises ``InputError`` for a gain of another shape.
    """
    record = _make_record(flow, role, kind, eps, gain, bias, over_heads)
    _check_parameters_over_heads(array, record)
    operands = ", ".join(f"@{place}" for place in range(1 + len(record.parameters)))
    flow.add(
        array,
        record.run,
        f"{_FUNCTIONS[kind]}({operands})",
        (role, *record.parameters),
        role=role,
        reason=_say_rows(flow, record),
        entries=partial(_write_entries, record, role, flow.spec.group),
        values={"eps": WrittenNumber(eps)},
        errors="rounded",
        norm=record,
    )


def _make_record(
    flow: Flow, role: str, kind: NormKind, eps: Any, gain: str, bias: str, over_heads: bool
) -> NormRecord:
    """Return what the step computes in a call, which may lack gain and bias."""
    gain, bias = (name if name in flow.given else "" for name in (gain, bias))
    heads = 1 if _joins_heads(flow) else flow.spec.heads_of.get(role, flow.spec.heads)
    over_heads = over_heads and heads > 1
    given = [name for name in (gain, bias) if name and heads > 1]
    by_head = tuple(name for name in given if _is_by_head(name, over_heads))
    return NormRecord(kind, eps, gain, bias, heads, over_heads, by_head)


def _joins_heads(flow: Flow) -> bool:
    """Return whether a projection before has joined the heads, whose columns are then like others."""
    return any(step.joins_heads for step in flow.steps)


def _say_rows(flow: Flow, record: NormRecord) -> str:
    """Return the reason of the step: what is normalised together."""
    if record.over_heads:
        return "over the columns of all heads together"
    if _joins_heads(flow):
        return ""
    return "of length 1, head by head" if record.kind == "l2" else "head by head"


def _is_by_head(parameter: str, over_heads: bool) -> bool:
    """Return whether an input has numbers for each head, by the shape in its row."""
    first_axis = ARRAYS[parameter].shape.split()[0]
    # ``[h*]d_k`` are the columns of all heads only where these are normalised together.
    return first_axis[0] in "[hg" and ("*]" not in first_axis or over_heads)


def _check_parameters_over_heads(array: str, record: NormRecord) -> None:
    """Raise ``InputError`` if a norm over all heads has a gain or a bias that is not as wide as its rows."""
    for parameter in record.parameters if record.over_heads else ():
        if "*" not in ARRAYS[parameter].shape:
            raise InputError(
                f"{array} is over all heads, and {parameter} has the shape {ARRAYS[parameter].shape}; "
                "hint: h*d_v in its row of symattn/attention/letters_of_attention.py"
            )


def _write_entries(record: NormRecord, role: str, group: int) -> str:
    """Return the entries of a norm; ``group`` heads of queries share one of keys and values."""
    of_keys = role in ("k", "v")
    i = "j" if of_keys else "i"
    if record.over_heads:
        return _write_entries_over_heads(record, i, "h_kv" if of_keys and group > 1 else "h")
    if record.by_head:
        mean = _MeanFormula(f"a{i}", f"0[a,{i},m]", "Σ_{m=1}^width", "width")
        return _write_entries_by_mean(record, i, mean)
    return _write_entries_of_heads(record, i)


def _write_entries_of_heads(record: NormRecord, i: str) -> str:
    """Return the entries of a norm of each head, with one gain and one bias for all heads."""
    x, member = f"0[{i},l]", f"0[{i},m]"
    if record.kind == "l2":
        return f"out[{i},l] = {x}/√(Σ_{{m=1}}^width {member}²)"
    first = f"r_{i}l = {x} − (Σ_{{m=1}}^width {member})/width -- less the mean"
    if record.kind == "layer":
        x, member = f"r_{i}l", f"r_{i}m"
    gain, bias = (_write_parameter(record, name) for name in (record.gain, record.bias))
    root = tokens.root_entries(x, member, record.eps, gain)
    whole = f"out[{i},l] = {root}{f' + {bias}' if bias else ''}"
    return f"{first}\n{whole}" if record.kind == "layer" else whole


def _write_parameter(record: NormRecord, name: str) -> str:
    """Return the entry of a gain or a bias in the column l of the head a."""
    if name not in record.by_head:
        return f"{name}[l]" if name else ""
    # Numbers of all heads may stand in rows, or one after the other.
    return f"{name}[a?·width + l]" if "*" in ARRAYS[name].shape else f"{name}[a?,l]"


def _write_entries_over_heads(record: NormRecord, i: str, count: str) -> str:
    """Return the entries of a norm whose means are over the columns of all ``count`` heads."""
    of_all = f"Σ_{{b=1}}^{count} Σ_{{m=1}}^width"
    mean = _MeanFormula(i, f"0[b,{i},m]", of_all, f"({count} width)", " over all heads")
    return _write_entries_by_mean(record, i, mean)


class _MeanFormula(NamedTuple):
    """A mean: the indices of its letter, the entry that it is of, the sums, their terms as a number, and a remark."""

    indices: str
    entry: str
    sums: str
    terms: str
    remark: str = ""


def _write_entries_by_mean(record: NormRecord, i: str, mean: _MeanFormula) -> str:
    """Return the entries with letters for the mean and the mean square, which keep the lines short."""
    lines, less = [], ""
    if record.kind == "layer":
        centre = f"μ_{mean.indices}"
        lines.append(f"{centre} = ({mean.sums} {mean.entry})/{mean.terms} -- the mean{mean.remark}")
        less = f" − {centre}"
    square = f"ν_{mean.indices}"
    of_squares = f"({mean.sums} ({mean.entry}{less})²)/{mean.terms}"
    eps, remark = (" + @eps", ", with ε") if record.eps else ("", "")
    lines.append(f"{square} = {of_squares}{eps} -- the mean square{mean.remark}{remark}")
    gain, bias = (_write_parameter(record, name) for name in (record.gain, record.bias))
    member = f"(0[a,{i},l]{less})" if less else f"0[a,{i},l]"
    lines.append(f"out[a,{i},l] = ({gain} {member})/√{square}{f' + {bias}' if bias else ''}")
    return "\n".join(lines)
