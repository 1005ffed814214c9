"""``symattn claim``: is a claim true?"""

from __future__ import annotations

import re
from typing import TypeVar

import click

from .groups import Grouped
from .output import Output, accepting, options

# A minus sign and the beginning of an expression: click would take these for short options.
_NEGATIVE = re.compile(r"^-(?=[\d.(√[]|\w+\(|[A-Za-z](?![A-Za-z]))")
_Value = TypeVar("_Value", str, tuple[str, ...])


class WithNumbers(Grouped):
    """A command that takes ``-1``, ``-.5``, ``-sqrt(2)`` and ``-x`` as arguments."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = {option for parameter in self.get_params(ctx) for option in parameter.opts}
        return super().parse_args(
            ctx, [w if w[:2] in own and "(" not in w else _NEGATIVE.sub("−", w) for w in args]
        )


def plain(_: click.Context, __: click.Parameter, value: _Value) -> _Value:
    """Return the arguments with the keyboard's minus sign again."""
    return (
        value.replace("−", "-")
        if isinstance(value, str)
        else tuple(word.replace("−", "-") for word in value)
    )


_MEASURE = click.option(
    "--measure", metavar="NAME", help="dot, cosine, angle or distance. Default: all."
)
_VECTORS = """A vector is [1, 1/2, .25], taken exactly, or EXAMPLE:TOKEN (FILE:TOKEN), such as word-vectors:king."""


@click.group("claim")
def command() -> None:
    """Check a claim exactly: exit code 0 if it holds, 1 if it is false, 3 if it is undecided."""


@command.command("weights", cls=WithNumbers, short_help="Can these numbers be a row of softmax?")
@click.argument("values", nargs=-1, required=True, callback=plain)
@options
@accepting
def weights(values: tuple[str, ...], output: Output) -> int:
    """Can VALUES be a row of softmax weights? Fractions and decimals of one digit are taken exactly: .3 is 3/10.

    \b
    symattn claim weights .3 .7 .1
    symattn claim weights 6.3379e-02 4.6831e-01 4.6831e-01

    Decimals of two digits and more may have been rounded: some row that rounds to them is enough.
    """
    from symattn.derivations import claims

    return output.emit(claims.weights(list(values)))


@command.command(
    "similarity", cls=WithNumbers, short_help="How similar are two vectors?", epilog=_VECTORS
)
@click.argument("a", callback=plain)
@click.argument("b", callback=plain)
@_MEASURE
@options
@accepting
def similarity(a: str, b: str, measure: str | None, output: Output) -> int:
    """How alike are the vectors A and B? As exact numbers; angles in degrees, correctly rounded.

    \b
    symattn claim similarity "[1, 0]" "[1, 1]" --measure cosine
    """
    from symattn.derivations import claims

    return output.emit(claims.similarity(a, b, measure))


@command.command(
    "closer", cls=WithNumbers, short_help="Are two vectors closer than two others?", epilog=_VECTORS
)
@click.argument("a", callback=plain)
@click.argument("b", callback=plain)
@click.option(
    "--than", nargs=2, required=True, callback=plain, metavar="C D", help="The two other vectors."
)
@_MEASURE
@options
@accepting
def closer(a: str, b: str, than: tuple[str, str], measure: str | None, output: Output) -> int:
    """Are A and B closer than C and D? Without --measure all four measures must say so.

    \b
    symattn claim closer E4:king E4:queen --than E4-before:king E4-before:queen
    """
    from symattn.derivations import claims

    return output.emit(claims.closer(a, b, than, measure))


@command.command("equal", cls=WithNumbers, short_help="Are two expressions or matrices equal?")
@click.argument("a", callback=plain)
@click.argument("b", callback=plain)
@options
@accepting
def equal(a: str, b: str, output: Output) -> int:
    """Are A and B equal? Each is an expression, with or without letters, or a vector or matrix of expressions.

    \b
    symattn claim equal "1/(1+2*exp(2))" "exp(-2)/(exp(-2)+2)"
    symattn claim equal "[[1, exp(0)]]" "[[1, 1]]"
    symattn claim equal "softmax([2, 4, 4])" "[0.0634, 0.468, 0.468]"
    symattn claim equal "[0.9, 0.3]" "9/10*[1, 0] + 1/10*[0, 1]"
    symattn claim equal "exp(a)/(exp(a)+exp(b))" "1/(1+exp(b-a))"

    Vectors may be added, multiplied by numbers, and given to softmax; digits beside a softmax may have been rounded.
    """
    from symattn.derivations import claims

    return output.emit(claims.equal(a, b))
