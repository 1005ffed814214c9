"""Files of certificates: written by ``symattn prove --certificate``, read by ``symattn check``.

A file is a record with the name of the theorem, its statement, grade and hypotheses in words, the rule in words
if it is argued, and the certificates. Only the certificates are checked: the reader must compare the formulas in them
with the words. A hostile file is refused in one line: sizes and depths are limited.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from symattn.proof.checker import check
from symattn.proof.checker_reading import Record

LARGEST = 4_000_000  # bytes
DEEPEST = 200  # lists within lists
GRADES = ("proved", "argued")


@dataclass(frozen=True)
class FileVerdicts:
    """The result for a file: ``why`` it is refused, or empty; how many certificates, and the bound on the error."""

    name: str = ""
    grade: str = ""
    says: str = ""
    rule: str = ""
    hypotheses: tuple[str, ...] = ()
    certificates: int = 0
    epsilon: float = 0.0
    why: str = ""


def check_file(content: bytes) -> FileVerdicts:
    """Check every certificate in the bytes of a file, without the prover."""
    try:
        record = _record(content)
    except ValueError as error:
        return FileVerdicts(why=str(error))
    name, records = str(record["theorem"]), record["certificates"]
    verdicts = []
    for n, one in enumerate(records, 1):
        verdict = check(one)
        if not verdict.accepted:
            return FileVerdicts(name, why=f"certificate {n} of {len(records)}: {_line(verdict.why)}")
        verdicts.append(verdict)
    hypotheses = tuple(map(_line, record["hypotheses"]))
    results = (_line(name), record["grade"], _line(record["statement"]), _line(record["rule"]))
    return FileVerdicts(*results, hypotheses, len(verdicts), sum(v.epsilon for v in verdicts))


def _record(content: bytes) -> Record:
    """Return the record in a file. Raises ValueError if there is none."""
    if len(content) > LARGEST:
        raise ValueError(f"more than {LARGEST} bytes")
    if _depth(content) > DEEPEST:
        raise ValueError(f"more than {DEEPEST} lists within each other")
    try:
        record = json.loads(content.decode("utf-8"), parse_int=_number)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no JSON: {_line(error)}") from error
    if not isinstance(record, dict) or record.get("schema") != 1 or record.get("kind") != "certificates":
        raise ValueError("no file of certificates of schema 1")
    texts = [record.get(key) for key in ("theorem", "statement", "rule")]
    lists = [record.get(key) for key in ("hypotheses", "certificates")]
    if not all(isinstance(x, str) for x in texts) or not all(isinstance(x, list) for x in lists):
        raise ValueError("the theorem, the statement, the rule, the hypotheses or the certificates are missing")
    if record.get("grade") not in GRADES or not record["certificates"]:
        raise ValueError("nothing in it is said to be proved")
    if (record["grade"] == "argued") is not bool(record["rule"]):
        raise ValueError("what is argued has a rule in words, and what is proved has none")
    return record


def _number(text: str) -> int:
    if len(text) > 20:
        raise ValueError("a number of more than 20 digits")
    return int(text)


def _depth(content: bytes) -> int:
    """Return how deep brackets are nested, counting those in texts too."""
    deepest = depth = 0
    for byte in content:
        depth += (byte in b"[{") - (byte in b"]}")
        deepest = max(deepest, depth)
    return deepest


def _line(x: object) -> str:
    """Return the text on one line, cut if it is long."""
    words = " ".join(str(x).split())
    return words if len(words) <= 500 else words[:497] + "…"
