"""``symattn.prove`` and ``symattn prove``: theorems of the catalogue and of users' files, decided and printed.

Theorems of a user's file are run once first, so that a mistake in them is reported in one line.

Statements are objects: an ``Identity`` of arrays that are ``Declared`` by shapes in letters, a ``bound`` between them,
a number ``above_zero``, an identity that ``Fails``, or several ``Together``. Each decides itself, and is the ``method``
of a ``Theorem``, if it needs a name and words. ``prove_equal`` compares two arrays of letters, and ``gradient`` gives
the derivatives of their functions. ``pairs`` are the sides of a statement in the world of ``Letters``, or in one of
``Numbers``. What is proved has ``certificates``, which ``check`` accepts or refuses without the prover:

>>> from symattn import functional, kinds, proving
>>> s, t = kinds.Indexed.letters("s", "n", "m"), kinds.Indexed.letters("t", "n", 1)
>>> proof = proving.prove_equal(functional.softmax(s + t), functional.softmax(s))
>>> proof.proved, [proving.check(record).accepted for record in proving.certificates([proof])]
(True, [True])
>>> proving.prove_equal(functional.softmax(s * t), functional.softmax(s)).proved
False
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from symattn.arrays.base import ArrayBase
from symattn.arrays.indexed import Indexed
from symattn.document.codec import command
from symattn.document.errors import (
    CannotRun,
    InputError,
    Refused,
    SymattnError,
    Undecided,
    named,
    of_kind,
)
from symattn.document.model import Document
from symattn.programs.loading import load_module
from symattn.programs.refusing import one_line, where
from symattn.proof.certificate import certificate, certificates
from symattn.proof.checker import check
from symattn.proof.code import raised_in_symattn
from symattn.proof.gradients import gradient
from symattn.proof.inequality import Certificate
from symattn.proof.joint_statements import Fails, Together, above_zero, bound
from symattn.proof.prover import equations
from symattn.proof.prover import prove as prove_equal
from symattn.proof.statement import Declared, Letters, Numbers, pairs, run
from symattn.proof.theorem import Decision, Identity, Refutation, Theorem, decide
from symattn.theorems import TOPICS, documents, findings, runner, select
from symattn.theorems.documents import Decided
from symattn.theorems.texts import letters_of

__all__ = [
    "Decision",
    "Declared",
    "Fails",
    "Identity",
    "Letters",
    "Numbers",
    "Refutation",
    "Theorem",
    "Together",
    "above_zero",
    "bound",
    "certificate",
    "certificates",
    "check",
    "decide",
    "gradient",
    "letters_of",
    "pairs",
    "prove",
    "prove_equal",
    "statements",
]

_RUN: set[str] = set()  # files and modules of theorems that have run in this process
_MANY = 8  # theorems; more are shown as a table
# Hints for statements with a mistake.
HINT = "state one with the decorator symattn.theorem, under a name of its own"
OPERATORS = "arrays are letters here; use operators, and the functions of x.__array_namespace__()"


def prove(
    *names: str | Theorem,
    explain: bool = False,
    jobs: int = 1,
    cached: bool = True,
    progress: runner.Progress = lambda done, of, name: None,
) -> Document:
    """Prove theorems about attention for all sizes, and refute the false variant of each.

    A name is that of a theorem or topic of the catalogue, a file or module of yours that states theorems, or a
    theorem made by the decorator ``symattn.theorem``. Without names the whole catalogue is proved. ``explain`` adds
    the whole argument, ``jobs`` is the number of processes, and without ``cached`` everything is decided anew.
    Raises InputError for any other name.

    >>> found = prove("softmax-shift")
    >>> found.holds, found.verdict_word
    (True, 'proved')
    """
    result = decided(names, explain=explain, jobs=jobs, cached=cached, progress=progress)
    return document(
        result, tuple(name if isinstance(name, str) else name.name for name in names), explain
    )


def document(
    decisions: Sequence[Decided], names: tuple[str, ...], explain: bool, coq: bool = False
) -> Document:
    """Return the requested theorems as a document, each in full, or as tables if there are many."""
    flags = {"all": not names or None, "explain": explain or None, "coq": coq or None}
    title = decisions[0].theorem.name if len(decisions) == 1 else "theorems"
    as_table = not explain and (not names or len(decisions) > _MANY)
    return (documents.table if as_table else documents.document)(
        decisions, command("prove", *names, options=flags), title
    )


def decided(
    names: Sequence[str | Theorem],
    *,
    explain: bool,
    jobs: int,
    cached: bool,
    progress: runner.Progress = lambda done, of, name: None,
) -> list[Decided]:
    """Decide the theorems with these names, topics or files, and those given as objects.

    A theorem whose code has a mistake is undecided, and says so; the others are decided. Raises InputError if there is
    no other.
    """
    words = tuple(named("prove()", name) for name in names if not isinstance(name, Theorem))
    own = {name.name: (name, "prove") for name in names if isinstance(name, Theorem)}
    chosen = {**(gathered(words) if words or not own else {}), **own}
    mistakes = {
        name: str(error)
        for name, (theorem, place) in chosen.items()
        if (error := _find_mistake_in_statement(theorem, place))
    }
    theorems = [theorem for name, (theorem, _) in chosen.items() if name not in mistakes]
    if not theorems:
        raise InputError(next(iter(mistakes.values())))
    # A theorem that is not in a file cannot be sent to another process.
    jobs = 1 if own else jobs
    # What a file sets in memory, its own theorems may rest on, but no others.
    sources = {*_RUN, *("the catalogue" for _, place in chosen.values() if not place)}
    cached = cached and not own and len(sources) == 1
    results = runner.run(
        theorems,
        partial(by_name, words),
        jobs=jobs,
        explain=explain,
        cached=cached,
        progress=progress,
    )
    found = {d.theorem.name: d for d in results}
    for name, why in mistakes.items():
        found[name] = Decided(chosen[name][0], findings.unstated(why))
    # If every theorem has a mistake in its code, the first one is the error.
    if all(mistake_in(d) for d in found.values()):
        place = chosen[results[0].theorem.name][1]
        why = mistake_in(results[0])
        raise InputError(f"{place}: {why}" if place else why)
    return [found[name] for name in chosen]


def mistake_in(decided: Decided) -> str:
    """Return the mistake in the code of a theorem, in one line; "" if there is none."""
    where = decided.finding.evidence.where
    return (
        where.removeprefix(findings.BAD_STATEMENT)
        if where.startswith(findings.BAD_STATEMENT)
        else ""
    )


def _find_mistake_in_statement(theorem: Theorem, place: str) -> InputError | None:
    """Run the functions of a user's statement once; return the error for a mistake in them."""
    try:
        if place:
            tried(theorem, place)
    except InputError as error:
        return error
    return None


def gathered(words: tuple[str, ...]) -> dict[str, tuple[Theorem, str]]:
    """Return the theorems of ``words`` by name, each with its file or module, or "" for the catalogue.

    A word is the name of a theorem, a topic, a file or a module; no words are the whole catalogue. Raises InputError
    for a word that is none of these, and for two theorems with the same name.
    """
    result: dict[str, tuple[Theorem, str]] = {}
    for word in words or [*TOPICS]:
        place = word if is_place(word) else ""
        for theorem in statements(word).values() if place else _select_from_catalogue(word):
            if result.setdefault(theorem.name, (theorem, place))[1] != place:
                raise InputError(
                    f"two theorems are called {theorem.name!r}; hint: prove them one after the other"
                )
    return result


@cache
def by_name(words: tuple[str, ...]) -> dict[str, Theorem]:
    """Return the theorems of ``gathered`` without their places.

    It is called once in a worker process, which may cache the result; elsewhere files may change between two calls.
    """
    return {name: theorem for name, (theorem, _) in gathered(words).items()}


def _select_from_catalogue(word: str) -> tuple[Theorem, ...]:
    try:
        return select((word,))
    except InputError as error:
        if Path(f"{word}.py").is_file():
            raise InputError(f"no theorem or topic {word!r}; did you mean '{word}.py'?") from error
        raise


def is_place(word: str) -> bool:
    """Return whether a word names a file or a module rather than a theorem: ``mine.py``, ``package.module``."""
    return (
        word.endswith(".py")
        or "/" in word
        or "\\" in word
        or ("." in word and not word.startswith("."))
    )


def statements(place: str) -> dict[str, Theorem]:
    """Return the theorems in a file or a module, by name, in their order there.

    A theorem without a topic gets the file's name. Raises InputError if the file cannot be imported, contains no
    theorem, or two with the same name.
    """
    if not place.endswith(".py") and not all(part.isidentifier() for part in place.split(".")):
        raise InputError(f"{place} is neither a module nor a .py file")
    try:
        module = load_module(place)
    except CannotRun as error:
        raise InputError(str(error)) from error
    # Its code has run in this process, on which later decisions may rest.
    _RUN.add(str(Path(place).resolve()) if place.endswith(".py") else place)
    result: dict[str, Theorem] = {}
    for theorem in _in_order(vars(module)):
        if theorem.name in result:
            raise InputError(f"{place}: two theorems are called {theorem.name!r}; hint: rename one")
        result[theorem.name] = (
            theorem if theorem.topic else replace(theorem, topic=Path(place).stem)
        )
    if not result:
        raise InputError(f"{place}: no theorem found; hint: {HINT}")
    return result


def _in_order(names: dict[str, Any]) -> Iterator[Theorem]:
    """Yield the theorems among the values of a module, and in lists there, each once."""
    known_ids: set[int] = set()
    for value in list(names.values()):
        for x in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(x, Theorem) and id(x) not in known_ids:
                known_ids.add(id(x))
                yield x


def tried(theorem: Theorem, place: str) -> None:
    """Run the functions of a statement once. Raises InputError with one line for a mistake in them."""
    method = theorem.method
    if not isinstance(method, (Identity, Certificate)):
        return
    false = method.false if isinstance(method.false, tuple) else (method.false,)
    _attempt_part_of_theorem(
        theorem, place, "statement", partial(_check_stated_sides, method, method.sides)
    )
    for variant in false:
        _attempt_part_of_theorem(
            theorem, place, "false variant", partial(_check_stated_sides, method, variant)
        )


def _check_stated_sides(method: Identity | Certificate, sides: Any) -> None:
    for sort in method.declared.sorts():
        if not sort.isidentifier():
            raise InputError(
                f"{sort!r} in a shape is not the name of a size; write a shape such as 'n d_k' or 'a+b h*d'"
            )
    result = run(sides, method.declared, Letters())
    for pair in result if isinstance(result, list) else [result]:
        if not isinstance(pair, tuple) or len(pair) != 2:
            what = "one array" if isinstance(pair, ArrayBase) else of_kind(pair)
            raise InputError(
                f"it returns {what}; hint: return (left, right), or a list of such pairs"
            )
        if isinstance(method, Identity):
            list(equations(*pair))


def _attempt_part_of_theorem(
    theorem: Theorem, place: str, what: str, attempt: Callable[[], None]
) -> None:
    try:
        attempt()
    except (Refused, Undecided):
        return  # the prover reports it, and numbers may still refute the statement
    except SymattnError as error:
        raise InputError(f"{place}: the {what} of {theorem.name!r}: {error}") from error
    # The code of a user may raise anything.
    except Exception as error:
        if raised_in_symattn(error):
            return  # the result of the theorem will report that symattn failed
        at = where(error)
        place_of_error = at if at.startswith(f"{Path(place).name}:") else place
        hint = f"; hint: {OPERATORS}" if Indexed.__name__ in str(error) else ""
        raise InputError(
            f"{place_of_error}: the {what} of {theorem.name!r} raises {one_line(error)}{hint}"
        ) from error
