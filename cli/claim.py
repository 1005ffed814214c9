"""``symattn claim``: is what somebody says true?"""

from __future__ import annotations

import click

from .numbers import WithNumbers, plain
from .output import Output, options


@click.group("claim", short_help="Check a claim about weights, similarities or expressions.")
def command() -> None:
    """Check a claim exactly: exit code 0 where it holds, 1 where it is false."""


@command.command("weights", cls=WithNumbers, short_help="Can these numbers be a row of softmax?")
@click.argument("values", nargs=-1, required=True, callback=plain)
@options
def weights(values: tuple[str, ...], output: Output) -> int:
    """Can VALUES be a row of softmax weights? They are taken exactly: .3 is 3/10.

    \b
    symattn claim weights .3 .7 .1
    """
    from symattn.derivations import claims

    return output.emit(claims.weights(list(values)))


@command.command("equal", cls=WithNumbers, short_help="Are two expressions or matrices equal?")
@click.argument("a", callback=plain)
@click.argument("b", callback=plain)
@options
def equal(a: str, b: str, output: Output) -> int:
    """Are A and B equal? Each is an expression or a matrix of expressions.

    \b
    symattn claim equal "1/(1+2*exp(2))" "exp(-2)/(exp(-2)+2)"
    """
    from symattn.derivations import claims

    return output.emit(claims.equal(a, b))
