"""``variants``: every variant of attention on every kind of array, by running it; all must give the exact value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import Any
from zlib import crc32

import numpy as np

from symattn.arrays.ball import Ball, precision
from symattn.arrays.exact import Exact
from symattn.attention.derivative import jvp, vjp
from symattn.attention.inputs import holds, shape
from symattn.attention.positions.position_fields import Rotary
from symattn.attention.variants import AGREES, OF_MODELS, SIZES, VARIANTS, NamedVariant
from symattn.document import model
from symattn.document.errors import InputError, Refused, Undecided
from symattn.document.evidence import Evidence, Grade
from symattn.document.tex import tex

_BITS = 192  # so narrow that balls of unequal values hardly overlap
_SMALL = {
    "n_q": 2,
    "n_k": 3,
    "d_v": 2,
    "d_model": 3,
    "d_y": 3,
    "d_out": 3,
    "l_a": 2,
    "l": 2,
    "l_q": 2,
}  # for letters
KINDS = (
    "indexed",
    "symbolic",
    "exact",
    "modular",
    "ball",
    "enclosure",
    "float32",
    "gradient",
    "LaTeX",
)


@dataclass(frozen=True)
class Support:
    """The support of a variant by each kind: None if it runs and is right, else the reason why not."""

    name: str
    variant: NamedVariant
    found: dict[str, str | None] = field(default_factory=dict)

    @cached_property
    def example(self) -> dict[str, np.ndarray]:
        """Inputs in sixteenths; masks that leave every query a key, and documents of two tokens and more."""
        rng = np.random.default_rng(crc32(self.name.encode()))
        return {
            name: _draw_entries_of_variant(name, self.variant, size, rng)
            for name, size in self.variant.shapes().items()
        }

    def run(self, lift: Callable[[np.ndarray], object]) -> list[Any]:
        """Return the outputs on arrays of a kind; booleans and integers stay plain."""
        spec = self.variant.spec
        numbers = {n: holds(n, spec) == "numbers" for n in self.example}
        inputs = {n: lift(a) if numbers[n] else a for n, a in self.example.items()}
        out = spec(**inputs)
        return list(out) if isinstance(out, tuple) else [out]

    @cached_property
    def balls(self) -> list[Any]:
        """The value in balls."""
        with precision(_BITS):
            return self.run(Ball.literal)


def support(name: str, variant: NamedVariant, kinds: tuple[str, ...] = KINDS) -> Support:
    """Run a variant on every kind."""
    result = Support(name, variant)
    for kind in kinds:
        try:
            reason = _CHECKS[kind](result)
        except Undecided:
            reason = "numbers are compared, which this kind cannot decide"
        except (Refused, InputError) as refusal:  # the end of its message
            reason = str(refusal).removesuffix("; use ball").rsplit(": ", 1)[-1]
        result.found[kind] = reason
    return result


def _draw_entries_of_variant(
    name: str, variant: NamedVariant, size: tuple[int, ...], rng: np.random.Generator
) -> np.ndarray:
    kind = holds(name, variant.spec)
    if kind == "whole numbers":
        halves = np.arange(size[-1]) * 2 // size[-1]
        # Rows of a rotation by sections differ, or all of them would be one.
        rows = np.arange(size[0])[:, None] * np.arange(size[-1])
        return halves if len(size) == 1 else halves + rows
    if kind == "booleans":
        allowed = rng.random(size) < 0.6
        # Every query keeps a key, since a row without keys has no value to compare.
        allowed[..., 0] = True
        return allowed
    # Sixteenths are exact in every format, so that all kinds get the same inputs.
    return rng.integers(-24, 25, size) / 16


# -- the kinds --------------------------------------------------------------------------------------------------------
def _fault_on_exact_arrays(of: Support) -> str | None:
    for array, balls in zip(of.run(Exact.literal), of.balls, strict=True):
        if not all(
            x.arb(_BITS).overlaps(ball)
            for x, ball in zip(array.entries.flat, balls.entries.flat, strict=True)
        ):
            return "gives another value"
    return None


def _fault_on_ball_arrays(of: Support) -> str | None:
    radii = [x.rad() for balls in of.balls for x in balls.entries.flat]
    return None if all(r < 2.0**-80 for r in radii) else "gives wide balls"


def _fault_on_enclosures(of: Support) -> str | None:
    from symattn.arrays.enclosure import Enclosure

    for array, balls in zip(of.run(Enclosure.literal), of.balls, strict=True):
        inside = [
            x.contains(y)
            for x, y in zip(array.balls().entries.flat, balls.entries.flat, strict=True)
        ]
        if not all(inside) or not (array.rad < 2.0**-30).all():
            return "misses the value" if not all(inside) else "gives wide intervals"
    return None


def _fault_on_symbolic_arrays(of: Support) -> str | None:
    from symattn.arrays.symbolic import Symbolic

    small = replace(of.variant, sizes={**_SMALL, **of.variant.sizes})
    letters = iter(range(len(small.names)))
    Support(of.name, small).run(
        lambda a: Symbolic.letters("abcdefghijklm"[next(letters)], *a.shape)
    )
    return None


def _fault_on_indexed_letters(of: Support) -> str | None:
    from symattn.proof.prover import prove
    from symattn.proof.statement import Declared, Letters

    shapes, world = shapes_in_letters(of.variant), Letters()
    arrays = {name: world.array(name, size, Declared(shapes)) for name, size in shapes.items()}
    out = of.variant.spec(**arrays)
    first = out[0] if isinstance(out, tuple) else out
    # which reads every element
    return None if prove(first, first).proved else "is not equal to itself"


def shapes_in_letters(variant: NamedVariant) -> dict[str, str]:
    """Return the shapes of arrays whose sizes are letters: p more keys than queries if a mask counts from the end."""
    spec = variant.spec
    h, g = spec.heads, spec.key_heads
    grouped = f"{g}*{h // g}" if 1 < g < h else str(h)
    written = {**{n: str(count) for n, count in spec.counts.items()}, "h": grouped}
    if spec.causal or spec.position is not None:
        written["n_k"] = (
            "n_q+later" if spec.alignment == "top-left" else f"{spec.prefix or 'cached'}+n_q"
        )
    if isinstance(spec.position, Rotary):
        written |= {"d_k": "f+f"} if spec.position.layout == "half" else {"d_k": "f*2"}
    if spec.latent is not None:
        written["d_k"] = "d_n+d_r"
    if spec.truncate is not None:
        written["d_k"] = f"{spec.truncate}+rest"
    sizes = {**SIZES, **variant.sizes}
    # as many as the specification says
    written |= {letter: str(sizes[letter]) for letter in ("n_b", "n_d")}
    result = {}
    for name in variant.names:
        axes = (
            shape(name, spec, variant.names)
            .replace("…", "")
            .replace("(h?)", "")
            .replace("?", "")
            .split()
        )
        result[name] = " ".join(
            _write_distributed_product(*(written.get(f, f) for f in axis.split("*")))
            for axis in axes
        )
    if spec.packed:
        columns = "+".join(f"{blocks}*d_k" for blocks in (h, g, g))
        result |= {
            name: result[name].replace(f"{h + 2 * g}*d_k", columns)
            for name in ("w_in", "b_in")
            if name in result
        }
    return result


def _write_distributed_product(*factors: str) -> str:
    """Return a product, distributed if the last factor is a sum: 2*d_n+2*d_r."""
    *blocks, last = factors
    return "+".join("*".join([*blocks, part]) for part in last.split("+"))


def _fault_on_residues(of: Support) -> str | None:
    from symattn.arrays.modular import modular
    from symattn.arrays.residues import primes

    kind = modular(*primes.prime_pairs((2, 3, 5, 7))[0], seed=0)
    of.run(kind.literal)
    return None


def _fault_on_float32_arrays(of: Support) -> str | None:
    from symattn.arrays.rounded import rounded

    kind = rounded("float32")
    with np.errstate(all="ignore"):
        got = of.run(lambda a: a.astype(np.float32))
    for array, bounded in zip(got, of.run(kind.lift), strict=True):
        if array.dtype != np.float32 or not np.all(bounded.within(array)):
            return "is off by more than rounding may be"
    return None


def _fault_on_gradients(of: Support) -> str | None:
    """Compare ⟨∂⟨G, f⟩/∂X, X'⟩ on a tape with ⟨G, ∂f(X)⟨X'⟩⟩ on dual numbers, X' = 1 and G = 1, 2, …."""
    spec = of.variant.spec
    with precision(_BITS):
        inputs = {
            n: Ball.literal(a) if holds(n, spec) == "numbers" else a for n, a in of.example.items()
        }
        moving = {n: x for n, x in inputs.items() if isinstance(x, Ball)}
        g = [Ball.lift(np.arange(x.entries.size).reshape(x.plain_shape) + 1) for x in of.balls]
        whole: Any = tuple(g) if len(g) > 1 else g[0]
        back = vjp(spec, whole, inputs)
        ones = {n: Ball.lift(np.ones(x.plain_shape)) for n, x in moving.items()}
        ahead = jvp(spec, ones, inputs)
        outputs = ahead if isinstance(ahead, tuple) else (ahead,)
        left = sum((x.sum() for x in back.values()), Ball.lift(0))
        products = ((x * y).sum() for x, y in zip(g, outputs, strict=True))
        right = sum(products, Ball.lift(0))
    (a,), (b,) = left.entries.flat, right.entries.flat
    if a.overlaps(b) and a.rad() < 2.0**-60 and b.rad() < 2.0**-60:
        return None
    return "differs forwards and backwards"


def _fault_on_latex_formulas(of: Support) -> str | None:
    """Return whether its document has a printable formula for every step."""
    document = of.variant.spec.document(of.variant.names)
    formulas = [
        step.formula
        for block in document.blocks
        if isinstance(block, model.Steps)
        for step in block.items
    ]
    steps = of.variant.spec.pipeline(of.variant.names)
    written = [tex(formula) for formula in formulas if formula is not None]
    return (
        None if len(written) == len(steps) + 1 and all(written) else "has steps without a formula"
    )


_CHECKS: Mapping[str, Callable[[Support], str | None]] = {
    "indexed": _fault_on_indexed_letters,
    "symbolic": _fault_on_symbolic_arrays,
    "exact": _fault_on_exact_arrays,
    "modular": _fault_on_residues,
    "ball": _fault_on_ball_arrays,
    "enclosure": _fault_on_enclosures,
    "float32": _fault_on_float32_arrays,
    "gradient": _fault_on_gradients,
    "LaTeX": _fault_on_latex_formulas,
}


# -- the document ------------------------------------------------------------------------------------------------------
def derivation() -> model.Document:
    """Return a table of which variant runs on which kind, with reasons where it does not."""
    every = {**VARIANTS, **OF_MODELS}
    rows = [support(name, variant) for name, variant in every.items()]
    return model.Document(
        "derivation",
        "variants",
        ("Variants of attention, and what they run on",),
        tuple(_yield_blocks_of_variants(rows)),
        hints=("symattn derive attention --help   the fields of a specification",),
    )


def _yield_blocks_of_variants(rows: list[Support]) -> Iterator[model.Block]:
    yield model.Paragraph(
        (
            "Each variant is one specification, run here on an example in which all sizes differ. Exact and NumPy"
            " arrays must give the value that balls enclose, NumPy within what rounding in float32 may do; the"
            " intervals of enclosures must hold it; gradients"
            " are taken forwards and backwards and must agree; where sizes or entries are letters, and on residues, it"
            " must run. Tests compare all kinds element by element, every variant with plain loops, and those named"
            " with the functions of others.",
        )
    )
    for family, group in groupby(rows, lambda row: row.variant.family):
        yield from _yield_table_of_family(family, list(group))
    cells = [reason for row in rows for reason in row.found.values()]
    passed = sum(reason is None for reason in cells)
    words = f"{len(rows)} variants in {len(KINDS)} ways: {passed} of {len(cells)} hold, the others are explained"
    yield model.Result("Result", (), (Evidence(Grade.SAMPLED, "one example of each"),), (words,))
    yield model.Caveat(
        (
            "An example says nothing of other sizes and entries. What holds for all sizes is proved: symattn prove.",
        )
    )


def _yield_table_of_family(family: str, rows: list[Support]) -> Iterator[model.Block]:
    yield model.Heading((family.capitalize(),))
    every_reason = (r for row in rows for r in row.found.values() if r is not None)
    reasons = list(dict.fromkeys(every_reason))
    titles = ["variant", *("NumPy" if k == "float32" else k for k in KINDS), "agrees with"]
    columns = model.headers(*titles)
    yield model.Table(columns, tuple(_make_row_of_support(row, reasons) for row in rows))
    if reasons:
        lettered = ((f"({_letter_of_reason(reasons, r)}) {r}",) for r in reasons)
        yield model.Items(tuple(lettered))


def _make_row_of_support(row: Support, reasons: list[str]) -> tuple[model.Text, ...]:
    cells = [
        "yes" if r is None else f"({_letter_of_reason(reasons, r)})" for r in row.found.values()
    ]
    others = ", ".join(other for other, names in AGREES.items() if row.name in names)
    return ((row.name,), *((cell,) for cell in cells), (others or "loops alone",))


def _letter_of_reason(reasons: list[str], reason: str) -> str:
    return "abcdefghijklmnopqrstuvwxyz"[reasons.index(reason)]
