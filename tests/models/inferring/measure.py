"""The table of the causal language models of 2025-26: python -m tests.models.inferring.measure [TYPE ...] (minutes).

A type belongs to these years if the latest copyright in its files of Transformers does. For each: where its attention
comes from (a row, else inferred), whether every call is explained and every form has a field, whether an audit judges
every part that mixes tokens, and parts that mix tokens and that the audit neither judges nor names, by a count of its
own. ``whole`` are types of which all is explained and judged, chosen keys as a mask from outside. Each type has a
process of its own, of 60 s of processor time at most.
"""

import inspect
import json
import os
import re
import resource
import sys
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from symattn import InputError, audit, configurations, reports
from symattn.models.auditing.dependence.in_float64 import lifted
from symattn.models.auditing.dependence.token_rows import Tokens

_YEAR = re.compile(r"Copyright\s+(?:\([cC]\)\s+)?(\d{4})")
_SECONDS = 60  # of processor time, of a type
_CHOSEN = "keys are chosen"
_REAL = 1e-9  # a change in float64 that is none of rounding
#: Tokens of a run.
TOKENS = 23


def tokens() -> Any:
    """Ids of tokens below the vocabulary of a tiny model, none of them twice, (1, n)."""
    import torch

    return (torch.arange(TOKENS) * 7 % 89 + 3)[None]


def recent_types(since: int = 2025) -> list[str]:
    """Return the causal language models of Transformers whose latest copyright is of this year or a later one."""
    from transformers import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    result = []
    for model_type in sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        folder = Path(inspect.getfile(CONFIG_MAPPING[model_type])).parent
        heads = [path.read_text(encoding="utf-8")[:1500] for path in folder.glob("[mc]o*.py")]
        years = [int(year) for head in heads for year in _YEAR.findall(head)]
        if max(years, default=0) >= since:
            result.append(model_type)
    return result


def innermost_mixers(model: Any) -> list[str]:
    """Return the modules that mix tokens and hold none that does: each runs again with one token of its input changed.

    It knows no class and no call, and looks into every module, so that it counts what a probe of layers may pass over.
    """
    import torch

    names = {module: name for name, module in model.named_modules()}
    runs: list[tuple[str, Any, Any, Any, Any]] = []
    layout = Tokens(1, TOKENS)

    def keep(module: Any, args: Any, kwargs: Any, out: Any) -> None:
        flat = layout.flat(_first_array(out))
        if module in names and names[module] and flat is not None:
            runs.append((names[module], module, args, kwargs, flat.clone()))

    handle = torch.nn.modules.module.register_module_forward_hook(keep, with_kwargs=True)
    with torch.no_grad(), lifted():
        try:
            model(tokens(), use_cache=False)
        finally:
            handle.remove()
        mixing = {name for name, *run in runs if _mixes(layout, *run)}
    return [name for name in mixing if not any(o != name and _is_within(o, name) for o in mixing)]


def _first_array(out: Any) -> Any:
    values = list(out.values()) if isinstance(out, dict) else out
    return (values[0] if values else None) if isinstance(values, (tuple, list)) else values


def _is_within(name: str, part: str) -> bool:
    return name == part or name.startswith(part + ".")


def _mixes(layout: Tokens, module: Any, args: Any, kwargs: Any, out: Any) -> bool:
    for token in (0, TOKENS // 2):
        changed = layout.arguments(args, kwargs, (token,))
        if changed is None:
            return False
        try:
            again = layout.flat(_first_array(module(*changed[0], **changed[1])))
        except Exception:
            return False
        if again is None or again.shape != out.shape:
            return False
        moved = (again - out).abs().amax(-1)[0]
        moved[token] = 0
        if float(moved.max()) > _REAL * float(out.abs().max()):
            return True
    return False


def audited(model: Any, padded: bool = True) -> reports.AuditReport:
    """Return the audit of a tiny model in float32: two items of 24 tokens, five of the second padding on its left."""
    import torch

    ids = torch.arange(48).view(2, 24) * 7 % 89 + 3
    mask = torch.ones_like(ids)
    mask[1, : 5 * padded] = 0
    ids[mask == 0] = model.config.get_text_config(decoder=True).pad_token_id or 0
    with torch.no_grad(), audit(model.float()) as report:
        model(ids, attention_mask=mask, use_cache=False)
    return report


def faults(report: reports.AuditReport) -> list[str]:
    """Return what an audit says is wrong."""
    calls = [f"{f.layer}: {f.verdict}" for f in report.findings if f.state == "wrong"]
    return calls + [words for one in report.dependence for words in one.faults]


def unnamed(report: reports.AuditReport, mixers: list[str]) -> list[str]:
    """Return the mixers in, around or below which the report has neither a part that mixes tokens nor a call."""
    said = [part.name for part in report.mixing] + [finding.layer for finding in report.findings]
    return [name for name in mixers if not any(_is_within(name, part) or _is_within(part, name) for part in said)]


def measured(model_type: str) -> dict[str, Any]:
    """Return the line of a type."""
    model = configurations.tiny(model_type)
    name = model.config.get_text_config(decoder=True).model_type
    source = "row" if {name, f"{name}_text"} & configurations.FAMILIES.keys() else "inferred"
    parts = configurations.parts_of(model)
    mixers = innermost_mixers(model)
    report = audited(model)
    open_ = sorted({words for part in parts for words in (*part.missing, *part.unknown)})
    unread = sorted({f.verdict for f in report.findings if f.state not in ("pass", "pass as given")})
    judged = not report.unjudged and not unread and bool(report.mixing)
    explained = not any(part.unknown or "no call of attention" in part.missing for part in parts)
    return {
        "source": source, "explained": explained and bool(parts), "field": all(p.is_explained for p in parts),
        "whole": explained and judged and not {m for m in open_} - {_CHOSEN},
        "judged": f"{len(report.mixing) - len(report.unjudged)}/{len(report.mixing)}", "all judged": judged,
        "mixers": len(mixers), "unnamed": unnamed(report, mixers),
        "open": open_, "unread": unread, "not judged": sorted({p.kind for p in report.unjudged}),
        "verdict": report.verdict.value, "accused": faults(report),
        "not counted": [d.reason for d in report.dependence if d.reason],
    }  # fmt: skip


def _alone(model_type: str, sink: int) -> int:
    """In a process of its own: the line goes to ``sink``; the exit code."""
    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
    try:
        try:
            line = measured(model_type)
        except InputError as error:
            line = {"source": "none", "open": [str(error)]}
        os.write(sink, json.dumps(line).encode())
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
    return 0


def table(types: list[str]) -> Counter[str]:
    """Print a line for each type, and the counts."""
    total: Counter[str] = Counter()
    for model_type in types:
        source, sink = os.pipe()
        child = os.fork()
        if child == 0:
            os._exit(_alone(model_type, sink))
        os.close(sink)
        os.waitpid(child, 0)
        line = json.loads(os.read(source, 1 << 16) or b'{"source": "crashed"}')
        os.close(source)
        total.update(types=1, run=line["source"] in ("row", "inferred"), unnamed=len(line.get("unnamed", [])))
        total.update(accused=bool(line.get("accused")))
        total.update({f"by {line['source']}": 1}, mixers=line.get("mixers", 0))
        total.update({name: bool(line.get(name)) for name in ("explained", "field", "all judged", "whole")})
        words = [f"{name}: {value}" for name, value in line.items() if value not in ([], True, False, "")]
        yes = ", ".join(name for name in ("explained", "field", "all judged", "whole") if line.get(name))
        print(f"{model_type} | {yes} | {'; '.join(words)}", flush=True)
    print(", ".join(f"{name} {count}" for name, count in total.items()))
    return total


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    table(sys.argv[1:] or recent_types())
