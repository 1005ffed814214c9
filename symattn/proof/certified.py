"""Every proof counts only if the checker accepts its certificate, whether or not the certificate is requested."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from random import Random
from typing import Any

from symattn.document.evidence import Evidence, Grade
from symattn.proof.certificate import certificate, premise
from symattn.proof.checker import CertificateVerdict, check
from symattn.proof.premises import Premise
from symattn.proof.prover import Proof


def certificates(proofs: Iterable[Proof], premises: Iterable[Premise] = ()) -> tuple[Mapping[str, Any], ...]:
    """Return the certificates of the proofs that succeeded, and of the premises."""
    return (*(certificate(p) for p in proofs if p.proved), *map(premise, premises))


def verdicts(records: Iterable[Mapping[str, object]]) -> tuple[CertificateVerdict, ...]:
    """Return the checker's verdicts; its random seed is fixed, so that documents are reproducible."""
    return tuple(_verdict(json.dumps(record)) for record in records)


@lru_cache(maxsize=1000)
def _verdict(written: str) -> CertificateVerdict:
    """Return the verdict on a certificate given as JSON, and cache it."""
    return check(json.loads(written), Random(0))


def accepted(evidence: Evidence, proofs: Iterable[Proof], premises: Iterable[Premise] = ()) -> Evidence:
    """Return ``evidence``, but undecided for a proof that has no certificate, or one that the checker refuses."""
    if evidence.grade not in (Grade.PROVED, Grade.ARGUED):
        return evidence
    results = verdicts(certificates(proofs, premises))
    refused = next((v.why for v in results if not v.accepted), "" if results else "there is no certificate")
    return Evidence(Grade.UNDECIDED, f"the checker refuses it: {refused}") if refused else evidence
