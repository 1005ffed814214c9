"""The exceptions of symattn. Every message says what is wrong, where, and hints at a remedy."""

from __future__ import annotations

from collections.abc import Iterable


class SymattnError(Exception):
    """Base of every error that symattn raises on purpose.

    >>> from symattn import claim
    >>> try:
    ...     claim("weigths", 1)
    ... except SymattnError as error:
    ...     print(error)
    unknown claim 'weigths'. Did you mean 'weights'? Known: weights, similarity, closer, equal
    """


class InputError(SymattnError, ValueError):
    """Bad input: an unknown name, shapes that do not fit, NaN, a broken file. The command line exits with 2.

    >>> from symattn import kind
    >>> kind("exact").lift([float("nan")])
    Traceback (most recent call last):
    symattn.document.errors.InputError: exact: nan in the data; only a mask may hold -inf, and nothing may hold NaN
    """


class Refused(SymattnError, TypeError):
    """This kind of array lacks the operation, or cannot represent its result exactly.

    >>> from symattn import kind
    >>> float(kind("exact").lift(1) / 3)
    Traceback (most recent call last):
    symattn.document.errors.Refused: exact: float() would round an element
    """


class Meaningless(Refused):
    """A statement cannot mean what it says, such as a float for π: results that are computed for it do not count."""


class MissingEntry(Meaningless, IndexError):
    """A statement takes an entry that its arrays lack at some sizes."""


class CannotRun(SymattnError):
    """The target cannot be imported, or its import does not end. The command line exits with 4.

    >>> from symattn import SymattnError
    >>> print(CannotRun("attn.py cannot be imported: SyntaxError: '(' was never closed"))
    attn.py cannot be imported: SyntaxError: '(' was never closed
    """


class CannotRunHere(CannotRun):
    """The target gives nothing to judge here, and may do so elsewhere: with more time, or on a device that it needs."""


class NeedsMemory(CannotRunHere):
    """The target needs more memory than it may have."""


class Undecided(SymattnError, ArithmeticError):
    """A comparison that the kind of array cannot decide. It is never guessed.

    >>> from symattn import kind
    >>> third = kind("ball").lift(["1/3"])
    >>> bool((third < third).all())  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    symattn.document.errors.Undecided: ball: is [0.333333333333333 +/- 3.71e-16] < [0.3333...
    """


class MissingExtra(SymattnError, ImportError):
    """An optional package is not installed; the message names the extra that installs it.

    >>> print(MissingExtra("torch", "torch"))
    torch is not installed; hint: pip install 'symattn[torch]'
    """

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed; hint: pip install 'symattn[{extra}]'")


def named(what: str, name: str, known: Iterable[str] = ()) -> str:
    """Return ``name`` if it is a str. Raises InputError for anything else, such as None, a list of names or a dtype."""
    if not isinstance(name, str):
        word = str(getattr(name, "__name__", name)).removeprefix("torch.")
        hint = f"; hint: {word!r}" if word in known else ""
        raise InputError(f"{what} expects a name (str), got {of_kind(name)}{hint}")
    return name


def of_kind(value: object) -> str:
    """Return what a value is: ``a list``, ``an int``, ``None``."""
    return "None" if value is None else article(type(value).__name__)


def article(word: str) -> str:
    """Return a word with its article: ``a list``, ``an int``."""
    return f"{'an' if word[:1] in 'aeiouAEIOU' else 'a'} {word}"


def near(word: str, known: Iterable[str]) -> str:
    """Return `` Did you mean 'scaling'?`` to follow a sentence, or "" if no known word is near."""
    result = nearest_of(word, known)
    return f" Did you mean {result!r}?" if result else ""


def perhaps(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean scaling?`` to end an error message, or "" if no known word is near."""
    result = nearest_of(word, known)
    return f"; did you mean {result}?" if result else ""


def among(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean scaling?`` to end an error message, or all known words if none is near."""
    return perhaps(word, known) or f"; known: {', '.join(known)}"


def nearest_of(word: str, known: Iterable[str], similarity: float = 0.6) -> str:
    """Return the known word that is nearest in spelling, or an empty string."""
    from difflib import get_close_matches

    spellings = {name.lower(): name for name in known}
    return next(
        (
            spellings[name]
            for name in get_close_matches(word.lower(), spellings, n=1, cutoff=similarity)
        ),
        "",
    )
