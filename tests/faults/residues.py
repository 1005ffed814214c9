"""Which programs of the collection run on residues, and what stopped the others.

    python -m tests.faults.residues [PATTERN]

prints the share, right programs that differ from their specification there, and each reason with its programs.
"""

from __future__ import annotations

import sys
import warnings
from collections import defaultdict

from symattn.programs.target import target
from symattn.programs.verifying import requested
from symattn.verification.semantics import IdentityResult
from tests.faults.collection.entries import Entry, Wrong
from tests.faults.collection.every import chosen


def on_residues(entry: Entry) -> IdentityResult:
    """The identity test of a program, in the domain that it is verified in."""
    how = {"framework": "torch" if entry.torch else "numpy", "dtype": entry.arithmetic.input.name}
    request = requested(entry.spec, domain=entry.domain, **how)
    return target(entry.program, request, entry.name).semantics(entry.spec, 60.0, entry.domain)


def main(pattern: str = "*") -> None:
    """Print what ran."""
    entries, reasons = chosen(pattern), defaultdict[str, list[str]](list)
    for entry in entries:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = on_residues(entry)
        if result.agrees is None:
            reasons[result.reason].append(entry.name)
        elif not result.agrees and not isinstance(entry, Wrong):
            print(f"right, and differs{' nearly' * result.nearly}: {entry.name}: {result.reason}")
    refused = sum(map(len, reasons.values()))
    print(f"{len(entries) - refused} of {len(entries)} programs run on residues")
    for reason, names in sorted(reasons.items(), key=lambda item: -len(item[1])):
        print(f"{len(names)}  {reason[:100]}: {', '.join(names)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
