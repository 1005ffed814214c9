"""What the derivation of the scaling assumes about queries and keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from symattn.attention.notation import D_K, N
from symattn.derivations.letters import DELTA, MU, SIGMA, dot, k, parameter, q, s
from symattn.document.model import Assumption, Assumptions, Text
from symattn.document.notation import Commas, Fence, Name, Node, equals, total
from symattn.proof.moments import INDEPENDENCE, MOMENTS, Family, Law


@dataclass(frozen=True)
class Setting:
    """d_k and the mean that was asked for: a number, a letter, or None for 0 first and then any."""

    d_k: int
    mean: Fraction | str | None = None

    @property
    def mu(self) -> Name:
        """The letter for the mean."""
        return parameter(self.mean) if isinstance(self.mean, str) else MU

    @property
    def centred(self) -> bool:
        """Whether the main derivation assumes μ = 0."""
        return not self.mean

    def score(self) -> Law:
        """One query and one key, any mean: s = q·k."""
        body = total("i", 1, D_K, q("i") * k("i"))
        return self._law((D_K,), {s(): dot(q(), k()), dot(q(), k()): body})

    def row(self) -> Law:
        """One query and several keys: s_j = q·k_j."""
        meanings: dict[Node, Node] = {s(j): dot(q(), k(j)) for j in (1, 2)}
        meanings |= {dot(q(), k(j)): total("i", 1, D_K, q("i") * k(j, "i")) for j in (1, 2)}
        difference = Fence("round", k(1) - k(2))
        meanings[dot(q(), difference)] = total("i", 1, D_K, q("i") * (k(1, "i") - k(2, "i")))
        return self._law((N, D_K), meanings)

    def main(self) -> Law:
        """The law of the score in the main derivation: A3 where it is assumed."""
        return self.score().at({self.mu.base: 0}) if self.centred else self.score()

    def _law(self, key_axes: tuple[Node, ...], meanings: dict[Node, Node]) -> Law:
        return Law(
            families=(
                Family("q", (D_K,), self.mu, SIGMA**2),
                Family("k", key_axes, self.mu, SIGMA**2),
            ),
            independent=frozenset("qk"),
            positive=("σ", "d_k", "n"),
            real=(self.mu.base,),
            definitions=meanings,
            at_least={"n": 2},
            labels={MOMENTS: "A1", INDEPENDENCE: "A2", **({self.mu.base: "A3"} if self.centred else {})},
        )

    def assumptions(self, dropped: str, normal: str) -> Assumptions:
        """A1, A2, for the centred case A3, and A4; with the sections, by title, that drop A3 and that assume A4."""
        shared = Assumption(
            "A1",
            (_run(q), " share mean ", self.mu, " and variance ", SIGMA**2, "; so do ", _run(k), "."),
        )
        independent = Assumption(
            "A2", ("All ", 2 * D_K, " components are independent."), ("no Gaussian shape is needed",)
        )
        zero = Assumption(
            "A3", ("Zero mean, ", equals(self.mu, 0), "."), (f"dropped in “{dropped}”",) if dropped else ()
        )
        at_zero: Text = () if self.centred else (", as at ", equals(self.mu, 0))
        law = (equals(DELTA, s(1) - s(2)), " is normal, with mean 0 and variance ", 2 * D_K * SIGMA**4, *at_zero, ".")
        gap = Assumption("A4", law, (f"for “{normal}” alone",))
        return Assumptions((shared, independent, *([zero] if self.centred else []), gap))


def _run(letter: Callable[..., Node]) -> Commas:
    return Commas((letter(1), Name("…"), letter(D_K)))


def at_size(setting: Setting) -> Node:
    """The condition d_k = 4."""
    return equals(D_K, setting.d_k)
