"""What is refused is refused in one line."""

from collections.abc import Callable
from typing import Any

import pytest

from symattn import InputError, SymattnError

#: Exceptions of code that has no result for the given sizes or numbers.
WITHOUT_RESULT = (SymattnError, ArithmeticError, LookupError, TypeError, ValueError)


def refusal(make: Callable[..., Any], *given: Any, kind: type[SymattnError] = InputError, **named: Any) -> str:
    """Return the one line in which a call is refused."""
    with pytest.raises(kind) as caught:
        make(*given, **named)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def refuses(
    make: Callable[..., Any], *given: Any, says: str, kind: type[SymattnError] = InputError, **named: Any
) -> None:
    """Assert that a call is refused in one line which holds these words."""
    assert says in refusal(make, *given, kind=kind, **named)
