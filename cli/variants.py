"""The options that say which variant of attention is meant: a field of ``Attention`` each."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeVar

import click

from .choices import Choice

POSITIONS = ("rotary", "alibi", "buckets", "shaw", "transformerxl", "disentangled")
_Command = TypeVar("_Command", bound=Callable[..., Any])


def variants(command: _Command) -> _Command:
    """Give a command the options of a variant; those that were not given are None, False or ()."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def specified(told: dict[str, Any]) -> tuple[Any, str]:
    """The specification that the options say, which are taken out of ``told``, and what was cut of a preset."""
    from symattn import Attention
    from symattn.attention import presets
    from symattn.attention.spelling import default

    definition = told.pop("definition", None)
    made_of = [n for n in told if n in Attention.__dataclass_fields__ or n in ("like", "without")]
    like = told.pop("like", None)
    fields = {name: told.pop(name) for name in tuple(told) if name in Attention.__dataclass_fields__}
    for name in told.pop("without", ()):
        fields[name] = default(name, Attention)
    fields = {name: None if value == "none" else value for name, value in fields.items()}
    spec, cut = presets.small(like, **fields) if like else (Attention(**fields), "")
    if definition is None:
        return spec, cut
    from symattn.verification.definitions.reading import read

    return read(definition, spec if made_of else None), cut


def _field(name: str) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    def read(_: click.Context, __: click.Parameter, text: str | None) -> Any:
        from symattn import Attention
        from symattn.attention.spelling import read
        from symattn.derivations.sheets.fields import field_of

        if text is not None and ":" in text:
            return field_of(Attention, name, text, f"--{name}")
        return text if text is None else read(text, POSITIONS if name == "position" else (name,)) or "none"

    return read


def _number(_: click.Context, parameter: click.Parameter, text: str | None) -> Fraction | int | str | None:
    if text is None or text == "none":
        return text
    try:
        found = Fraction(text)
    except (ValueError, ZeroDivisionError, OverflowError):
        raise click.BadParameter(f"{text!r} is neither a number, such as 0.125 or 1/8, nor none.") from None
    return int(found) if found.denominator == 1 else found


def _window(_: click.Context, __: click.Parameter, text: str | None) -> Any:
    if text is None or text == "none":
        return text
    try:
        sides = tuple(None if side.strip() in ("none", "-") else int(side) for side in text.split(","))
    except ValueError:
        raise click.BadParameter(f"{text!r} is no number of keys such as 4, and no LEFT,RIGHT such as 3,0.") from None
    return sides[0] if len(sides) == 1 else sides


def _fields(_: click.Context, __: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    from symattn import Attention

    found = tuple(name.replace("-", "_") for name in names)
    for name in found:
        if name not in Attention.__dataclass_fields__:
            raise click.BadParameter(f"{name!r} is no field of a specification.")
    return found


_OPTIONS = (
    click.option("--like", metavar="NAME", help="The attention of a model: llama, gpt2, gemma2, ..."),
    click.option("--without", multiple=True, metavar="FIELD", callback=_fields, help="Leave out a field of --like."),
    click.option("--kv-heads", type=int, help="Number of heads of keys and values."),
    click.option("--score", type=Choice(("dot", "general", "additive", "cosine", "distance")), help="The score."),
    click.option("--truncate", type=int, help="Scores see so many columns."),
    click.option("--softcap", callback=_number, metavar="C", help="Scores are capped: c tanh(s/c)."),
    click.option("--bias", is_flag=True, help="There is a bias of the scores."),
    click.option("--window", callback=_window, metavar="W", help="Keys in the window: W, or LEFT,RIGHT."),
    click.option("--block", type=int, help="Places in a block."),
    click.option("--prefix", type=int, help="Keys that every query sees."),
    click.option("--documents", is_flag=True, help="There are labels of packed documents."),
    click.option("--packed", is_flag=True, help="One matrix makes queries, keys and values."),
    click.option("--latent", callback=_field("latent"), metavar="LATENT", help="latent, Latent(norm='rms'), or none."),
    click.option("--qk-norm", type=Choice(("none", "rms", "layer", "l2")), help="Queries and keys are normalised."),
    click.option("--eps", callback=_number, metavar="E", help="The epsilon of that."),
    click.option("--position", callback=_field("position"), metavar="POSITION",
                 help="rotary, alibi, buckets, Rotary(base=500000), ..., or none."),
    click.option("--normaliser", type=Choice(("softmax", "sigmoid", "relu", "sparsemax", "entmax")),
                 help="What makes weights of scores."),
    click.option("--base", type=int, help="2 for powers of two."),
    click.option("--sink", type=Choice(("none", "given", "zero")), help="A logit that takes weight."),
    click.option("--dropout", callback=_number, metavar="P", help="Rate at which weights are dropped."),
)  # fmt: skip
