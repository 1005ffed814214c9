"""Plan the verifications of a campaign, every target with every specification, dtype and domain, and store results.

A file is TOML:

    targets = ["attn.py:attention", { target = "flash.py:forward", layout = "bhnd" }]
    dtypes = ["float32", "bfloat16"]

    [options]                 # for every verification, those of ``symattn verify``
    budget = 5

    [specs.plain]             # fields of Attention, ``like``, and options
    [specs.causal]
    causal = true
    alignment = "top-left"
    call = ["is_causal=true"]

    [domains.short]           # fields of Domain: the promised shapes and scores
    max_tokens = 33

Results are a line of JSON each, on the disk before the next job begins. A process that is killed while it writes leaves
at most an incomplete line, which is no result: it is cut off when the campaign continues, and its job runs again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import product
from pathlib import Path
from typing import Any

from symattn import __version__
from symattn.arrays.formats import FORMATS
from symattn.attention import presets
from symattn.attention.codec.field_values import field_of
from symattn.attention.codec.json_text import loaded, refuse_unknown
from symattn.attention.spec import Attention
from symattn.bounds.domain import Domain
from symattn.document.codec import Record, record
from symattn.document.errors import InputError
from symattn.document.keywords import format_name

_LARGEST = 2**20  # bytes of a file
_MOST = 1_000_000  # jobs
# Entries that a file may have.
_SECTIONS = ("targets", "dtypes", "options", "specs", "domains")
#: Options of ``verify_target`` and the types of their values.
OPTIONS: dict[str, type | tuple[type, ...]] = {
    "contract": str,
    "call": list,
    "mask_arg": str,
    "mask_axes": str,
    "layout": str,
    "framework": str,
    "time_limit": (int, float),
    "examples": int,
    "budget": (int, float),
    "seed": int,
}
# Fields that the sections of specifications and of domains may have.
_FIELDS = tuple(f.name for f in fields(Attention))
_DOMAIN = tuple(f.name for f in fields(Domain))


@dataclass(frozen=True)
class Job:
    """One verification: its names for readers, and everything on which it depends, in types of JSON."""

    target: str
    spec: str
    dtype: str
    domain: str
    fields: Mapping[str, Any]
    promised: Mapping[str, Any]
    options: Mapping[str, Any]

    @property
    def key(self) -> str:
        """A hash of everything on which the result depends, which identifies it."""
        # Another version may judge otherwise, so that its results have other keys.
        result = [
            __version__,
            self.target,
            self.dtype,
            dict(self.fields),
            dict(self.promised),
            dict(self.options),
        ]
        return hashlib.sha256(json.dumps(result, sort_keys=True).encode()).hexdigest()[:16]

    RECORD = "key, target, spec, dtype, domain, fields, promised, options"

    @property
    def attention(self) -> tuple[Attention, str]:
        """The specification, and a note on how a preset was reduced."""
        outcome = dict(self.fields)
        like = outcome.pop("like", None)
        result = {
            name: field_of(Attention, name, value, f"specs.{self.spec}.{name}")
            for name, value in outcome.items()
        }
        if like is not None and not isinstance(like, str):
            raise InputError(f"specs.{self.spec}.like must be the name of a model, got {like!r}")
        # A preset is reduced to sizes that can be verified.
        return presets.small(like, **result) if like else (Attention(**result), "")


def read(path: Path) -> tuple[Job, ...]:
    """Read the jobs of a file. Raises ``InputError``, which names the entry and how to mend it."""
    result = loaded(path, _LARGEST, toml=True)
    refuse_unknown(result, _SECTIONS, str(path))
    for name in ("options", "specs", "domains"):
        _require_table_of_plan(result.get(name, {}), f"{path}: {name}")
    return planned(
        _require_list_of_plan(result.get("targets", []), f"{path}: targets"),
        result.get("specs", {}),
        _require_list_of_plan(result.get("dtypes", ["float32"]), f"{path}: dtypes"),
        result.get("domains", {}),
        result.get("options", {}),
    )


def planned(
    targets: Iterable[object],
    specs: Mapping[str, object],
    dtypes: Iterable[object],
    domains: Mapping[str, object],
    options: Mapping[str, object],
) -> tuple[Job, ...]:
    """Return a job for every target with every specification, dtype and domain, without duplicates."""
    targets, dtypes = (
        tuple(_yield_campaign_targets(targets)),
        tuple(map(_expand_dtype_name, dtypes)),
    )
    specs, domains = specs or {"plain": {}}, domains or {"all": {}}
    _check_campaign_options(options, "options")
    if not targets:
        raise InputError("a campaign needs a target; hint: targets = ['file.py:function']")
    if len(targets) * len(specs) * len(dtypes) * len(domains) > _MOST:
        raise InputError(f"a campaign of more than {_MOST} verifications is not planned")
    jobs: dict[str, Job] = {}
    for (target, own), (spec, of_spec), dtype, (domain, promised) in product(
        targets, _yield_campaign_specs(specs), dtypes, _yield_campaign_domains(domains)
    ):
        result = {n: x for n, x in of_spec.items() if n not in OPTIONS}
        more = {n: x for n, x in of_spec.items() if n in OPTIONS}
        job = Job(target, spec, dtype, domain, result, promised, {**options, **own, **more})
        # The same job may be listed twice.
        jobs.setdefault(job.key, job)
    return tuple(jobs.values())


def _yield_campaign_targets(targets: Iterable[object]) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, entry in enumerate(targets, 1):
        where = f"targets, entry {number}"
        own = (
            dict(_require_table_of_plan(entry, where))
            if not isinstance(entry, str)
            else {"target": entry}
        )
        # A target has a function behind its file or module.
        name = own.pop("target", None)
        if not isinstance(name, str) or ":" not in name:
            raise InputError(
                f"{where} names no target; give package.module:function or file.py:function"
            )
        _check_campaign_options(own, where)
        yield name, own


def _yield_campaign_specs(specs: Mapping[str, object]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, entry in specs.items():
        where = f"specs.{name}"
        result = {
            key.replace("-", "_"): value
            for key, value in _require_table_of_plan(entry, where).items()
        }
        refuse_unknown(result, (*_FIELDS, "like", *OPTIONS), where)
        options = {name: value for name, value in result.items() if name in OPTIONS}
        _check_campaign_options(options, where)
        of_fields = {n: x for n, x in result.items() if n not in OPTIONS}
        # refuse an invalid specification before any work
        _ = Job("", name, "", "", of_fields, {}, {}).attention
        yield name, result


def _yield_campaign_domains(domains: Mapping[str, object]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, entry in domains.items():
        where = f"domains.{name}"
        result = {
            key.replace("-", "_"): value
            for key, value in _require_table_of_plan(entry, where).items()
        }
        refuse_unknown(result, _DOMAIN, where)
        for field, value in result.items():
            whole = type(getattr(Domain(), field)) is int
            # True is an integer for Python, but no size.
            if not isinstance(value, int if whole else int | float) or (
                isinstance(value, bool) and whole
            ):
                raise InputError(
                    f"{where}.{field} must be {'an integer' if whole else 'a value'}, got {value!r}"
                )
        # Values that contradict each other raise here, before any job runs.
        Domain(**result)
        yield name, result


def _check_campaign_options(results: Mapping[str, Any], where: str) -> None:
    from symattn.programs.verifying import check_numbers

    refuse_unknown(results, OPTIONS, where)
    for name, value in results.items():
        texts = name != "call" or all(isinstance(text, str) for text in value)
        # bool is a subclass of int, and no number of an option.
        if not isinstance(value, OPTIONS[name]) or isinstance(value, bool) or not texts:
            raise InputError(f"{where}.{name} is {value!r}, which it cannot be")
    check_numbers(
        **{
            name: results[name]
            for name in ("budget", "time_limit", "seed", "examples")
            if name in results
        }
    )


def _expand_dtype_name(name: object) -> str:
    if (full := format_name(str(name))) not in FORMATS:
        raise InputError(f"dtypes: {name!r} is unknown; known: {', '.join(FORMATS)}")
    return full


def _require_table_of_plan(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"{where} must be a table, got {value!r}")
    return value


def _require_list_of_plan(value: object, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise InputError(f"{where} must be a list, got {value!r}")
    return value


# Names of the files in a campaign's folder.
RESULTS, PLAN = "results.jsonl", "plan.json"
_LONGEST = 10_000_000  # bytes of a line


class Store:
    """A folder with ``plan.json``, the jobs, and ``results.jsonl``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, jobs: Sequence[Job]) -> None:
        """Make the folder, write the jobs, and cut off an incomplete line."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            # The plan is replaced as a whole, so that no reader meets half of it.
            part = self.folder / f".{PLAN}.part"
            part.write_text(json.dumps(record(jobs), indent=1) + "\n", encoding="utf-8")
            part.replace(self.folder / PLAN)
            with (self.folder / RESULTS).open("ab+") as file:
                # Only the last line can be incomplete.
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _LONGEST))
                tail = file.read()
                if tail and not tail.endswith(b"\n"):
                    file.truncate(size - len(tail) + tail.rfind(b"\n") + 1)
        except OSError as error:
            raise InputError(f"{self.folder} cannot be used: {error.strerror}") from error

    def append(self, record: Record) -> None:
        """Add a result, which is on the disk when this returns."""
        line = json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        handle = os.open(self.folder / RESULTS, flags, 0o666)
        try:
            # One write of a whole line, so that parallel runs do not mix their lines.
            written = os.write(handle, line.encode())
            os.fsync(handle)
            if written < len(line.encode()):
                raise InputError(f"{self.folder} cannot be used: the disk took a part of a result")
        finally:
            os.close(handle)

    def results(self) -> dict[str, Record]:
        """Return the last result of each job by its key. Raises ``InputError`` for a broken line."""
        path = self.folder / RESULTS
        if not path.exists():
            return {}
        results: dict[str, Record] = {}
        with path.open("rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(_LONGEST), b""), 1):
                # An incomplete last line is no result.
                if not line.endswith(b"\n"):
                    break
                try:
                    result = json.loads(line)
                except ValueError:
                    result = None
                if not isinstance(result, dict) or not isinstance(result.get("key"), str):
                    raise InputError(
                        f"{path}, line {number} is not a result; hint: remove the line, and run again"
                    )
                results[result["key"]] = result
        return results

    def plan(self) -> tuple[Record, ...]:
        """Return the stored jobs. Raises ``InputError`` if there are none."""
        path = self.folder / PLAN
        try:
            result = json.loads(path.read_text(encoding="utf-8"))
            jobs = tuple(dict(job) for job in result)
            # A file of another program may have the same name.
            if not all({"key", "target", "spec", "dtype", "domain"} <= job.keys() for job in jobs):
                raise ValueError("no jobs")
        except OSError as error:
            raise InputError(
                f"{self.folder} holds no campaign: {PLAN}: {error.strerror}"
            ) from error
        except (ValueError, TypeError) as error:
            raise InputError(f"{path} is not a plan of a campaign") from error
        return jobs
