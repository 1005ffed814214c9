"""A campaign of mutations: definitions and statements are changed, and the theorems must notice."""

import ast
import signal
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import islice
from types import CodeType
from typing import Any
from unittest.mock import patch

from symattn.document.evidence import Grade
from symattn.proof import theorem
from symattn.proof.inequality import Certificate
from symattn.proof.refuting import CounterexampleSearch
from symattn.proof.theorem import Identity, Theorem
from tests.proof.mutation_copy import Part, Unit, fresh
from tests.proof.mutation_operators import Function, Mutant, mutants
from tests.proof.mutation_survivors import equivalent
from tests.proof.mutation_truths import nearest_weights, true_all_the_same

LEAST, TIMES = 5.0, 30.0  # processor seconds that a mutant may take: so many, or so many times the original's
BY_PROOF = (Identity, Certificate)  # these end alike for functions that are proved equal


@dataclass(frozen=True)
class Trial:
    """What became of a mutant: ``how`` is the grade that a theorem ended with, or "raised", "false variant", "time"."""

    unit: Unit
    mutant: Mutant
    killer: str = ""
    how: str = ""
    reason: str = ""  # why a survivor is none

    @property
    def key(self) -> str:
        """The mutant in one line."""
        return f"{self.unit.path}: {self.mutant.change}: {ast.unparse(self.mutant.tree)}"

    @property
    def survived(self) -> bool:
        """Whether no theorem noticed, and it is not known to be the same function."""
        return not self.killer and not self.reason


def drawn(units: list[Unit], every: int = 1) -> Iterator[tuple[Unit, Mutant]]:
    """Each mutant of ``units``, or one in ``every``."""
    each = ((unit, mutant) for unit in units for mutant in mutants(unit.tree))
    return islice(each, every - 1, None, every)


def tried(unit: Unit, mutant: Mutant) -> Trial:
    """The mutant in the place of its function, and the theorems run until one ends other than before."""
    with mutated(unit, mutant), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reason = equivalent(unit) if unit.definition else ""
        parts = [p for p in unit.parts if not isinstance(p.method, BY_PROOF)] if reason else unit.parts
        late = ""
        for part in list(parts):
            how = _noticed(part)
            if how and how != "time":
                unit.parts.remove(part)
                unit.parts.insert(0, part)  # it is likely to notice the next mutant, too
                return Trial(unit, mutant, part.theorem.name, how)
            late = late or (part.theorem.name if how else "")
        if late or reason:
            return Trial(unit, mutant, late, "time" if late else "", reason)
        if unit.path in ("attention.softmax.sparsemax", "attention.softmax.entmax15"):
            return _sparse(unit, mutant)
        for name, stated in unit.theorems.items():
            if _unsound(stated):
                return Trial(unit, mutant, name, "false variant")
        return Trial(unit, mutant, reason="" if unit.definition else true_all_the_same(unit.parts))


def _sparse(unit: Unit, mutant: Mutant) -> Trial:
    """The theorem is about the nearest weights; that the definition gives them is looked at in exact numbers."""
    if nearest_weights():
        return Trial(unit, mutant, reason="the nearest weights, in exact numbers")
    return Trial(unit, mutant, "the conditions of the nearest weights", "exact numbers")


@contextmanager
def mutated(unit: Unit, mutant: Mutant) -> Iterator[None]:
    """The function with the mutant's code, and with its defaults."""
    function = unit.function
    assert function
    code, defaults = function.__code__, function.__defaults__
    try:
        function.__code__ = _code(mutant.tree, code)
        given = mutant.tree.args.defaults
        if all(isinstance(d, ast.Constant) for d in given):
            function.__defaults__ = tuple(ast.literal_eval(d) for d in given) or None
        yield
    finally:
        function.__code__, function.__defaults__ = code, defaults


def _code(tree: Function, old: CodeType) -> CodeType:
    whole: ast.mod = ast.Expression(tree) if isinstance(tree, ast.Lambda) else ast.Module([tree], [])
    flags = old.co_flags & 0x1000000  # from __future__ import annotations
    compiled = compile(whole, old.co_filename, "eval" if isinstance(tree, ast.Lambda) else "exec", flags)
    return next(c for c in compiled.co_consts if isinstance(c, CodeType))


class _Late(BaseException):
    """Too much time was taken."""


def _noticed(part: Part) -> str:
    """How the decision of a part ends, if not with its grade.

    What was proved and is no longer is noticed: how hard a counterexample is looked for then makes no difference.
    """
    proved = part.grade in (Grade.PROVED.value, Grade.ARGUED.value)

    def stop(*_: Any) -> None:
        raise _Late

    before = signal.signal(signal.SIGVTALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, max(LEAST, TIMES * part.seconds))
        with patch.object(theorem, "thorough", _nothing) if proved else nullcontext():
            found = fresh(part.method).decide().evidence.grade.value
    except _Late:
        return "time"
    except Exception:
        return "raised"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    return found if found != part.grade else ""


def _nothing(*_: Any) -> CounterexampleSearch:
    """No counterexample, and no reason to believe that there is none."""
    return CounterexampleSearch(None, 0, 0, {})


def _unsound(stated: Theorem) -> bool:
    try:
        refutation = fresh(stated.method).refute()
        return refutation.accepted or not refutation.refuted or not fresh(stated.method).witness()
    except Exception:
        return True


def summary(found: list[Trial]) -> str:
    """How many mutants of definitions and statements there were, and by what they were killed."""
    lines = []
    for word, chosen in (("definitions", True), ("statements", False)):
        of = [t for t in found if t.unit.definition is chosen]
        ways = Counter(t.how for t in of if not t.survived)
        lines.append(f"{word}: {len(of)} mutants, {sum(t.survived for t in of)} survivors; killed: {dict(ways)}")
    killers = Counter(t.killer for t in found if not t.survived)
    lines += [f"  {n:4} by {name}" for name, n in killers.most_common()]
    return "\n".join(lines)
