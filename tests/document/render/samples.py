"""Documents that show every block: a derivation, and a walk with matrices too wide for a page."""

from collections.abc import Callable
from fractions import Fraction
from typing import Literal

from symattn.document import model as md
from symattn.document import notation as nt
from symattn.document.evidence import Evidence, Grade
from symattn.document.notation import At, Big, Call, Commas, Fence, Name, Node, Partial, Product, Root, Row, Transposed

E_ = Name("e")
D_K = nt.name("d", "k")
SIGMA, MU, DELTA, N, P, J, Z = (Name(x) for x in ("σ", "μ", "Δ", "n", "p", "J", "Z"))
PROVED = Evidence(Grade.PROVED)
CHECKED = Evidence(Grade.CHECKED, "n = 2, …, 6")
HALF = nt.Number(Fraction(1, 2))


def q(*sub: nt.Like) -> Name:
    return nt.name("q", *sub, role="query")


def k(*sub: nt.Like) -> Name:
    return nt.name("k", *sub, role="key")


def s(*sub: nt.Like) -> Name:
    return nt.name("s", *sub, role="score")


def mean(x: Node) -> Call:
    return Call(Name("E"), (x,), square=True)


def var(x: Node) -> Call:
    return nt.call("Var", x)


def dot(a: Node, b: Node) -> Product:
    return Product((a, b), "·")


def _score() -> tuple[md.Block, ...]:
    products = nt.Sum(tuple(q(i) * k(i) for i in range(1, 5)))
    four = 4 * MU**2
    return (
        md.Heading(("The score and its mean",)),
        md.Steps(
            (
                md.Step(
                    nt.equals(s(), dot(q(), k()), nt.total("i", 1, D_K, q("i") * k("i")), products),
                    ("definition, ", nt.equals(D_K, 4)),
                ),
                md.Step(
                    nt.equals(
                        mean(s()),
                        nt.total("i", 1, 4, mean(q("i") * k("i"))),
                        nt.total("i", 1, 4, mean(q("i")) * mean(k("i"))),
                        four,
                        0,
                    ),
                    ("linearity; A2; A3",),
                    PROVED,
                ),
            )
        ),
    )


def _variance() -> tuple[md.Block, ...]:
    v = var(s())
    fourfold = 4 * (mean(q(1) ** 2 * k(1) ** 2) - mean(q(1) * k(1)) ** 2)
    return (
        md.Heading(("Its variance grows with ", D_K)),
        md.Steps(
            (
                md.Step(
                    nt.equals(v, nt.total("i", 1, 4, var(q("i") * k("i")))),
                    ("A2: the four products are independent",),
                    PROVED,
                ),
                md.Step(nt.equals(v, fourfold), ("A1: identical terms",), PROVED),
                md.Step(
                    nt.equals(v, Product((nt.node(4), SIGMA**2, SIGMA**2), "·"), 4 * SIGMA**4),
                    (nt.equals(mean(q(1) ** 2), SIGMA**2 + MU**2), " with ", nt.equals(MU, 0)),
                    Evidence(Grade.CHECKED, "all 256 points of {±1}⁸"),
                ),
            )
        ),
        md.Result(
            "Result 1",
            (
                Row(
                    (
                        nt.equals(var(dot(q(), k())), At(D_K * SIGMA**4, nt.equals(D_K, 4)), 4 * SIGMA**4),
                        nt.equals(var(dot(q(), k()) / Root(D_K)), D_K * SIGMA**4 / D_K, SIGMA**4),
                        nt.Words("for every "),
                        D_K,
                    )
                ),
            ),
            (PROVED, Evidence(Grade.CHECKED, "exactly on {±1}⁸")),
        ),
    )


def _means() -> tuple[md.Block, ...]:
    apart = nt.equals(var(s(1) - s(2)), var(dot(q(), Fence("round", k(1) - k(2)))), 2 * D_K * SIGMA**4)
    return (
        md.Heading(("If the means are not zero",)),
        md.Paragraph(
            (
                "The variance is still linear in ", D_K, ", so ", 1 / Root(D_K), " still removes the growth of the ",
                md.Emph("variance"), "; but the mean ", nt.equals(mean(s()), D_K * MU**2), " grows like ", D_K,
                ", and softmax ignores what all scores of a row share:",
            )
        ),
        md.Steps((md.Step(apart, (), PROVED),)),
    )  # fmt: skip


def _jacobian() -> tuple[md.Block, ...]:
    def p(i: int) -> Name:
        return nt.name("p", i)

    full = nt.matrix([[p(i) * (1 - p(i)) if i == j else -(p(i) * p(j)) for j in (1, 2, 3)] for i in (1, 2, 3)])
    delta = nt.name("δ", "i", "j")
    e_i, e_j = E_ ** s("i"), E_ ** s("j")
    pi, pj = nt.name("p", "i"), nt.name("p", "j")
    return (
        md.Heading(("The softmax Jacobian",)),
        md.Paragraph(
            ("Let ", nt.equals(P, nt.call("softmax", s())), ", ", nt.equals(pi, e_i / Z), " with ",
             nt.equals(Z, nt.total("ℓ", 1, N, E_ ** s("ℓ"))), "."),
        ),
        md.Steps(
            (
                md.Step(
                    nt.equals(Partial(pi, s("j")), (delta * e_i * Z - e_i * e_j) / Z**2, delta * pi - pi * pj),
                    ("quotient rule",),
                    CHECKED,
                ),
                md.Step(
                    nt.equals(nt.call("J", P), nt.call("diag", P) - P * Transposed(P), full),
                    (nt.equals(N, 3),),
                    CHECKED,
                ),
            )
        ),
        md.Result(
            "Result 2",
            (
                Row(
                    (
                        nt.equals(J, Transposed(J)),
                        nt.equals(J * Name("1", bold=True), 0),
                        nt.Relation(
                            Transposed(Name("x")) * J * Name("x"),
                            (
                                ("=", nt.call(nt.name("Var", nt.relation("i", "∼", P)), nt.name("x", "i"))),
                                ("≥", nt.node(0)),
                            ),
                        ),
                        nt.Relation(
                            Fence("norm", J, Name("∞")),
                            (("=", Big("max", Name("i"), None, None, 2 * pi * (1 - pi))), ("≤", HALF)),
                        ),
                    )
                ),
            ),
            (CHECKED,),
        ),
    )  # fmt: skip


def _gap() -> tuple[md.Block, ...]:
    tail = Big("sum", nt.relation("ℓ", "≠", "m"), None, None, E_ ** (s("ℓ") - s("m")))
    bound = (N - 1) * E_**-DELTA
    largest = Big("max", nt.commas("i", "j"), None, None, Fence("abs", nt.name("J", "i", "j")))
    both = nt.relation(largest, "≤", Name("ε")), nt.relation(Fence("norm", J, Name("∞")), "≤", 2 * bound)
    epsilon = nt.Relation(Name("ε"), (("=", tail / (1 + tail)), ("≤", bound / (1 + bound)), ("<", bound)))
    return (
        md.Heading(("A large gap makes every entry of ", J, " small")),
        md.Steps(
            (
                md.Step(epsilon, ("monotone",), PROVED),
                md.Step(
                    Row(both),
                    (nt.relation(nt.name("p", "i"), "≤", Name("ε")), " for ", nt.relation("i", "≠", "m")),
                    PROVED,
                ),
            )
        ),
        _table(),
        md.Caveat(
            ("The collapse is of the ", md.Emph("typical"), " row. The ", md.Emph("mean"), " of ",
             Partial(nt.name("p", 1), s(1)), " over random rows falls only like ",
             1 / (2 * Root(Name("π") * D_K) * SIGMA**2), ", because a fraction of about ", 1 / Root(D_K),
             " of the rows has two nearly tied scores and keeps a gradient of order one."),
        ),
        md.Note(("Sampled with 10⁶ rows & seed #0: 100 % of them_agree; a~b, C:\\dir, {x}^2 ≤ ε … “ok” – é ő ş 漢.",)),
        md.Items((("first item",), ("second item with ", Root(D_K)))),
        md.Listing("symattn derive jacobian --n 3\n  J = diag(p) − p pᵀ  # not {verbatim} \\end", "text"),
    )  # fmt: skip


def _table() -> md.Table:
    group: md.Text = (Partial(nt.name("p", 1), dot(q(), k(1))), " at that gap, ", nt.equals(N, 2))
    rows = (
        (1, "1.414", "0.157", "0.157", "1"),
        (4, "2.828", "0.0527", "0.0787", "1.49"),
        (16, "5.657", "3.47e-3", "0.0393", "11.3"),
        (64, "11.31", "1.22e-5", "0.0197", "1.6e3"),
        (256, "22.63", "1.49e-10", "0.00983", "6.6e7"),
    )
    cells = tuple((((nt.node(d),)), *((nt.Decimal(x),) for x in others)) for d, *others in rows)
    quarter = nt.Number(Fraction(1, 4))
    return md.Table(
        (
            md.Column((D_K,)),
            md.Column(("gap ", Root(2 * D_K))),
            md.Column(("unscaled ", quarter * nt.call("sech", Root(D_K / 2)) ** 2), group=group),
            md.Column(("scaled",), group=group),
            md.Column(("ratio",)),
        ),
        cells,
        shaded=(1,),
    )


def derivation() -> md.Document:
    """The derivation of 1/√d_k."""
    return md.Document(
        kind="derivation",
        name="scaling",
        title=("Why attention divides by ", Root(D_K)),
        subtitle=("a complete derivation, specialised to ", nt.equals(D_K, 4)),
        command="symattn derive scaling --dk 4",
        parameters={"dk": 4},
        blocks=(
            md.Assumptions(
                (
                    md.Assumption(
                        "A1",
                        (Commas((q(1), Name("…"), q(D_K))), " share mean ", MU, " and variance ", SIGMA**2, "; so do ",
                         Commas((k(1), Name("…"), k(D_K))), "."),
                    ),
                    md.Assumption(
                        "A2", ("All ", 2 * D_K, " components are independent.",), ("no Gaussian shape is needed",)
                    ),
                    md.Assumption("A3", ("Zero mean, ", nt.equals(MU, 0), "."), ("dropped in step 7",)),
                )
            ),
            *_score(),
            *_variance(),
            *_means(),
            *_jacobian(),
            *_gap(),
        ),
    )  # fmt: skip


def walk() -> md.Document:
    """Eight steps with entries that no page is wide enough for."""
    ones = ((1, 0, 2), (2, 2, 2), (2, 1, 3))
    integers = tuple(tuple(nt.node(x) for x in row) for row in ones)
    exponents = ((2, 4, 4, 1), (4, 16, 12, 3), (4, 12, 10, 7))
    big = tuple(
        tuple((1 + a * E_**a) / nt.Sum(tuple(b * E_ ** (b + 1) for b in row)) for a in row) for row in exponents
    )
    digits = tuple(tuple(f"{a / sum(row):.6g}" for a in row) for row in exponents)
    row = (1 / (1 + 2 * E_**2), E_**2 / (1 + 2 * E_**2), -(E_**2 / (1 + 2 * E_**2)))
    decimals = ("0.0633789", "0.468311", "-0.468311")
    return md.Document(
        kind="walk",
        name="eight-step",
        title=("Eight-step self-attention",),
        command="symattn walk eight-step",
        blocks=(
            md.Values("queries", nt.name("Q", role="query"), integers, ones, reason=("Q = X W_Q",), evidence=PROVED),
            md.Values("weights of query 1", nt.name("a", 1, role="weight"), row, decimals,
                      {"float16": ("0.0634", "nan", "-inf")}, evidence=Evidence(Grade.ENCLOSED)),
            md.Values("output", nt.name("O", role="output"), big, digits, {"float32": digits},
                      reason=("weights times values",), evidence=Evidence(Grade.CHECKED, "this input")),
            md.Values("heads", nt.name("A", role="weight"), (integers, integers), (ones, ones)),
            md.Values("sum of the row", Name("Σ"), nt.node(1), "1"),
            md.Note(("S is symmetric here by accident.",)),
        ),
    )  # fmt: skip


Sample = Callable[[], md.Document]
BASES = ("x", "mu", "Σ", "ε", "softmax", "max", "ẽ", "x̂", "ℓ", "S'", "d_x y", "1", "E", "∞", "…", "long word", "Ω", "Α")
FENCES: tuple[Literal["abs", "norm", "round", "curly"], ...] = ("abs", "norm", "round", "curly")
OPERATORS: tuple[Literal["sum", "prod", "max"], ...] = ("sum", "prod", "max")
