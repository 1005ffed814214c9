"""What symattn raises. Every message says what is wrong, where, and how to mend it."""

from __future__ import annotations


class SymattnError(Exception):
    """Base of every error that symattn raises on purpose."""


class InputError(SymattnError, ValueError):
    """Bad input: an unknown name, shapes that do not fit, NaN, a broken file. The command line exits with 2."""


class Refused(SymattnError, TypeError):
    """This kind of array lacks the operation, or the operation would leave what it can hold exactly."""


class Undecided(SymattnError, ArithmeticError):
    """A comparison that the kind of array cannot decide. It is never guessed."""


class MissingExtra(SymattnError, ImportError):
    """An optional package is not installed; the message names the extra that brings it."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed; mend: pip install 'symattn[{extra}]'")
