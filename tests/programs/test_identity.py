"""Users' programs as they stand against specifications, on residues: right ones pass, mistakes show."""

import os
import sys
import types
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from symattn import Attention, Domain, Evidence, Grade, Refused, kind, kinds
from symattn.bounds.called_target import Convention
from symattn.bounds.inputs import Sizes
from symattn.programs import identity as tested
from symattn.programs.calling import agree
from symattn.programs.calls import Target
from symattn.programs.request import Request
from symattn.programs.substitute import substitute
from symattn.programs.target import target
from symattn.verification.semantics import IdentityResult
from tests.arrays.users import RIGHT, Program
from tests.faults.collection.every import chosen
from tests.faults.collection.heads import multihead
from tests.programs import numpy_programs as programs
from tests.sizes import SIZES

SMALL = (Sizes(), Sizes(4, 9, 16, 5))
SQUARE = (Sizes(5, 5, 4, 3), Sizes(4, 4, 16, 4))
CAUSAL = Attention(causal=True)


def identity(
    function: Callable[..., Any], spec: Attention, how: Convention | None = None, sizes: Any = SIZES, **options: Any
) -> IdentityResult:
    return tested.identity(Target(function, how or agree(function, Request.of(spec))), spec, sizes, **options)


def named(case: Any) -> str:
    found = case[0].func if isinstance(case[0], partial) else case[0]
    how = "".join(f", {k}={v}" for k, v in case[0].keywords.items()) if isinstance(case[0], partial) else ""
    return getattr(found, "__qualname__", type(found).__name__) + how


def collected(names: str) -> list[tuple[Any, Attention]]:
    return [(entry.program, entry.spec) for name in names.split() for entry in chosen(name)]


RIGHT_ONES = programs.RIGHT + collected(
    "scaling.exp2_folded scaling.per_head_loop streaming.online streaming.online_causal streaming.split_keys "
    "streaming.decoding masking.causal_row_by_row masking.causal_top_left masking.filled_with_minus_1e9 "
    "masking.additive masking.padding_cut_out softmax.sink_in_denominator calls.own_buffer"
)
RIGHT_ONES.append((partial(multihead, heads=2), Attention(heads=2)))
#: What these need, a root of 2 in an exponent or an axis of heads, is not made below.
NOT_EXACT = ("exp2_folded", "per_head_loop", "sink_in_denominator")
WRONG_ONES = programs.WRONG + collected(
    "scaling.by_width masking.not_itself masking.top_left softmax.over_queries softmax.by_length "
    "softmax.sum_over_queries softmax.epsilon_in_denominator streaming.last_tile_dropped heads.merge_by_reshape"
)


@pytest.mark.parametrize("case", RIGHT_ONES, ids=named)
def test_a_right_program_is_tested_to_the_bound(case: Any) -> None:
    found = identity(*case, sizes=SMALL)
    assert found.agrees
    assert found.evidence.grade is Grade.TESTED
    assert found.epsilon is not None
    assert 0 < found.epsilon <= 1e-12
    assert found.difference is None
    assert not found.reason


@pytest.mark.deep
@pytest.mark.parametrize("case", WRONG_ONES, ids=named)
def test_a_mistake_shows(case: Any) -> None:
    found = identity(*case, sizes=SMALL)
    assert found.agrees is False
    assert found.difference is not None
    assert found.evidence.grade is Grade.UNDECIDED  # no fault until floats show it
    assert found.epsilon is None
    assert "differ from the specification, the first at" in found.reason


@pytest.mark.parametrize("number", [1.7976931348623157e308, 1e300, 1e-300, 2.2250738585072014e-308, 5e-324])
@pytest.mark.parametrize("framework", ["numpy", pytest.param("torch", marks=pytest.mark.torch)])
def test_numbers_at_the_ends_of_the_range_are_read_as_rough(framework: str, number: float) -> None:
    xp: Any = np if framework == "numpy" else pytest.importorskip("torch")

    def attention(q: Any, k: Any, v: Any) -> Any:
        s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
        e = xp.exp(xp.clip(s, None, number) if number > 1 else s)
        return e / (e.sum(-1)[..., None] + (0 if number > 1 else number)) @ v

    called = target(attention, Request.of(Attention(), framework=framework, dtype="float64"))
    found = called.semantics(Attention(), 60)
    assert found.agrees is False
    assert found.nearly


@pytest.mark.parametrize("case", [c for c in RIGHT_ONES if named(c) not in NOT_EXACT], ids=named)
def test_a_right_program_is_right_on_exact_numbers_too(case: Any) -> None:
    """The same programs, with the same globals replaced, on another kind."""
    program, spec = case
    exact, draw = kind("exact"), np.random.default_rng(1)
    convention = agree(program, Request.of(spec))
    shapes = {
        "q": (2, 4),
        "k": (4, 4),
        "v": (4, 3),
        "x": (3, 2),
        "w_q": (2, 8),
        "w_k": (2, 8),
        "w_v": (2, 4),
        "w_o": (4, 3),
    }
    inputs: dict[str, Any] = {n: exact.lift(draw.integers(-2, 3, shapes[n])) for n in convention.inputs if n in shapes}
    if "mask" in convention.inputs:
        mask = np.array([[True, False, True, True], [True, True, False, False]])
        inputs["mask"] = mask if spec.mask == "boolean" else exact.literal(np.where(mask, 0.5, -np.inf))
    if "keep" in convention.inputs:
        inputs["keep"] = np.array([True, False, True, True])
    expected = spec(**inputs)
    got = substitute(program, exact)(*[inputs[n] for n in convention.inputs])
    assert got.shape == expected.shape
    assert (got == expected).all()


@pytest.mark.parametrize("program", RIGHT, ids=lambda f: f.__name__)
def test_what_runs_by_dispatch_alone_runs_with_replaced_globals(program: Program) -> None:
    if "heads" in program.__name__:
        by_name = {f.__name__: f for f in RIGHT}
        other = by_name["two_heads" if program is not by_name["two_heads"] else "two_heads_in_a_list"]
        of = kinds.modular(seed=1)
        q, k, v = of.lift(np.arange(32).reshape(4, 8) % 3), of.letters(4, 8), of.letters(4, 8)
        assert (substitute(program, of)(q, k, v) == other(q, k, v)).all()
        return
    spec = CAUSAL if program.__name__.startswith(("causal", "with_a")) else Attention()
    sizes = (Sizes(4, 4, 4, 3),) if program.__name__ == "causal_by_triu" else SQUARE
    assert identity(program, spec, sizes=sizes).agrees


# -- what cannot be judged ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("program", "words"),
    [
        (programs.floats, "modular: float() would round an element"),
        (programs.largest_by_comparison, "modular: residues have no order"),
        (programs.a_second_layer, "modular: an exponential or a quotient of data inside an exponent"),
        (lambda q, k, v: q.sort(), "AttributeError"),
        (lambda q, k, v: np.linalg.det(q), "modular lacks det"),
        (lambda q, k, v: 1 / 0, "ZeroDivisionError: division by zero"),
    ],
)
def test_what_does_not_run_is_named_and_not_judged(program: Any, words: str) -> None:
    found = identity(program, Attention(), sizes=SMALL)
    assert found.agrees is None
    assert words in found.reason
    assert found.evidence.grade is Grade.UNDECIDED


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (lambda q, k, v: 3.0, "the function returned float"),
        (lambda q, k, v: v, r"the function returned shape (5, 3), not (3, 3)"),
    ],
)
def test_what_returns_something_else_differs(program: Any, words: str) -> None:
    found = identity(program, Attention(), sizes=SMALL)
    assert found.agrees is False
    assert words in found.reason


@pytest.mark.deep
def test_what_a_copied_process_cannot_run_runs_in_this_one() -> None:
    """A GPU that is in use does not survive copying the process; here the function says so as torch does."""
    mine = os.getpid()

    def on_gpu(q: Any, k: Any, v: Any) -> Any:
        if os.getpid() != mine:
            raise RuntimeError("Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, …")
        return programs.root_by_math(q, k, v)

    assert target(on_gpu, Request(framework="numpy", layout="nd")).semantics(Attention(), 60.0).agrees


def test_the_first_of_several_results_is_taken() -> None:
    assert identity(lambda q, k, v: (programs.root_by_math(q, k, v), None), Attention(), sizes=SMALL).agrees


def test_a_root_that_leaves_the_bound_is_sampled() -> None:
    """With d_k = 3 the exponents are no rational multiples of the letters."""
    found = identity(programs.root_by_math, Attention(), sizes=[Sizes(3, 5, 3, 2)])
    assert found.agrees
    assert found.evidence.grade is Grade.SAMPLED
    assert found.epsilon is None
    assert "no bound" in found.evidence.where
    assert not identity(programs.made_by_a_closure(lambda d: 1 / d), Attention(), sizes=[Sizes(3, 5, 3, 2)]).agrees


def test_primes_are_chosen_in_which_roots_exist() -> None:
    """√13 exists in few pairs; they are found, and the function is run on those."""
    found = identity(programs.root_by_math, Attention(), sizes=[Sizes(2, 3, 13, 2)])
    assert found.agrees

    assert all(kinds.has_root(13, m) for pair in found.pairs for m in pair)


def test_a_function_that_changes_its_inputs_is_compared_with_what_they_were() -> None:
    def attention(q: Any, k: Any, v: Any) -> Any:
        out = programs.root_by_math(q, k, v)
        q *= 0
        v[...] = 1
        return out

    assert identity(attention, Attention(), sizes=SMALL).agrees


# -- how it is called --------------------------------------------------------------------------------------------------
@pytest.mark.deep
@pytest.mark.parametrize("layout", ["bhnd", "bnhd"])
def test_axes_for_batch_and_heads(layout: Any) -> None:
    def attention(q: Any, k: Any, v: Any, is_causal: bool = False) -> Any:
        swap = (lambda x: x.transpose(0, 2, 1, 3)) if layout == "bnhd" else (lambda x: x)
        q, k, v = map(swap, (q, k, v))
        s = np.einsum("bhid,bhjd->bhij", q, k) / np.sqrt(q.shape[-1])
        if is_causal:
            s = np.where(np.tri(s.shape[-2], s.shape[-1], s.shape[-1] - s.shape[-2], dtype=bool), s, -np.inf)
        return swap(np.einsum("bhij,bhjd->bhid", programs.stable_softmax(s), v))

    convention = agree(attention, Request.of(CAUSAL, layout=layout))
    assert identity(attention, CAUSAL, convention, SMALL).agrees
    assert not identity(attention, Attention(), convention, SMALL).agrees


def test_a_mask_that_means_the_opposite() -> None:
    def attention(q: Any, k: Any, v: Any, ignore: Any) -> Any:
        return programs.boolean_mask(q, k, v, ~ignore)

    spec = Attention(mask="boolean")
    for told, right in (("~ignore", True), ("ignore", False)):
        convention = agree(attention, Request.of(spec, mask_arg=told))
        assert identity(attention, spec, convention, SMALL).agrees is right


def test_a_causal_mask_that_the_caller_makes() -> None:
    convention = agree(programs.boolean_mask, Request.of(CAUSAL, mask_arg="mask"))
    assert identity(programs.boolean_mask, CAUSAL, convention, SMALL).agrees


def test_the_same_seed_gives_the_same_answer() -> None:
    first, second = (identity(programs.root_by_math, Attention(), sizes=SMALL, seed=5) for _ in range(2))
    assert first == second
    assert identity(programs.root_by_math, Attention(), sizes=SMALL, seed=6).pairs != first.pairs


def test_a_smaller_epsilon_takes_more_pairs() -> None:
    def pairs(epsilon: float) -> IdentityResult:
        return identity(programs.root_by_math, Attention(), sizes=SMALL, epsilon=epsilon)

    loose, tight = pairs(1e-6), pairs(1e-30)
    assert len(loose.pairs) < len(tight.pairs)
    assert tight.epsilon is not None
    assert tight.epsilon <= 1e-30


# -- what is replaced, and what is left alone --------------------------------------------------------------------------
def test_nothing_of_the_users_module_is_changed() -> None:
    before = dict(vars(programs))
    cells = programs.made_by_a_closure(lambda d: 1).__closure__
    of = kinds.modular(seed=1)
    substitute(programs.mask_from_a_cache, of)(of.letters(2, 4), of.letters(3, 4), of.letters(3, 2))
    assert dict(vars(programs)) == before
    assert programs.np is np
    assert programs._masks == {}
    assert programs.tiles_in_place.__globals__ is vars(programs)
    assert cells is not None


def test_helpers_of_other_modules_of_the_users_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    helpers = types.ModuleType("a_users_helpers")
    helpers.__file__ = "/home/somebody/a_users_helpers.py"
    exec(
        "import numpy as np\n"
        "from math import sqrt\n"
        "def buffer(shape): return np.zeros(shape)\n"
        "def scaled(s, d, depth=2): return s / sqrt(d) if depth == 0 else scaled(s, d, depth - 1)\n",
        vars(helpers),
    )
    monkeypatch.setitem(sys.modules, "a_users_helpers", helpers)

    def attention(q: Any, k: Any, v: Any) -> Any:
        out = helpers.buffer((q.shape[0], v.shape[1]))
        out += programs.stable_softmax(helpers.scaled(q @ k.T, q.shape[1])) @ v
        return out

    assert identity(attention, Attention(), sizes=SMALL).agrees
    of = kinds.modular(seed=1)
    with pytest.raises(Exception, match=r"modular|written"):
        attention(of.letters(2, 4), of.letters(3, 4), of.letters(3, 2))


def test_softmax_of_scipy_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    special = types.ModuleType("scipy.special")
    exec(
        "def softmax(x, axis=None): raise RuntimeError('compiled code')\n"
        "def logsumexp(a, axis=None, keepdims=False): raise RuntimeError('compiled code')\n",
        vars(special),
    )
    special.softmax.__module__ = "scipy.special._logsumexp"
    monkeypatch.setitem(sys.modules, "scipy.special", special)
    softmax = special.softmax

    def by_name(q: Any, k: Any, v: Any) -> Any:
        return softmax(q @ k.T / np.sqrt(q.shape[-1]), axis=-1).astype(np.float32) @ v

    def by_module(q: Any, k: Any, v: Any) -> Any:
        s = q @ k.T / np.sqrt(q.shape[-1])
        return np.exp(s - special.logsumexp(s, axis=1)[:, None]) @ v

    def of_columns(q: Any, k: Any, v: Any) -> Any:
        return special.softmax(q @ k.T / np.sqrt(q.shape[-1]), axis=0) @ v

    assert identity(by_name, Attention(), sizes=SMALL).agrees
    assert identity(by_module, Attention(), sizes=SMALL).agrees
    assert identity(of_columns, Attention(), sizes=SMALL).agrees is False


def test_a_method_of_an_object_and_functions_that_call_each_other() -> None:
    class Model:
        width = 2

        def forward(self, q: Any, k: Any, v: Any) -> Any:
            return even(np.zeros((q.shape[0], v.shape[1])), 2 * self.width) + programs.root_by_math(q, k, v)

    def even(x: Any, n: int) -> Any:
        return x if n == 0 else odd(x, n - 1)

    def odd(x: Any, n: int) -> Any:
        return even(x + np.zeros(x.shape), n - 1)

    convention = agree(Model().forward, Request.of(Attention()))
    assert identity(Model().forward, Attention(), convention, SMALL).agrees


def test_roots_of_plain_numbers_are_exact_and_others_stay_floats() -> None:
    of = kinds.modular(seed=1)

    def program(x: Any) -> Any:
        import math

        assert np.sqrt(16) == math.sqrt(16) == 4.0
        assert math.cos(0.5) < 1
        assert math.floor(2.5) == 2
        return x

    assert substitute(program, of)(of.lift(3)) == 3
    fixed = substitute(programs.sqrt_of_two, of)
    assert (fixed(of.lift(1)) ** 2 == 2).all()


def test_batches_are_compared_as_well() -> None:
    def attention(q: Any, k: Any, v: Any) -> Any:
        return programs.stable_softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v

    assert identity(attention, Attention(), sizes=[replace(s, batch=(2,)) for s in SMALL]).agrees


#: Each promise of a domain, with others that it needs to mean something.
PROMISES: dict[str, dict[str, Any]] = {
    "max_tokens": {"max_tokens": 1}, "max_width": {"max_width": 3}, "square": {"square": True},
    "same_width": {"same_width": True}, "multiple_of": {"multiple_of": 8}, "min_tokens": {"min_tokens": 6},
    "width_multiple_of": {"width_multiple_of": 3}, "min_width": {"min_width": 5},
    "powers_of_two": {"powers_of_two": True},
    "width_powers_of_two": {"width_powers_of_two": True}, "decoding": {"decoding": True},
    "square_weights": {"square_weights": True}, "contiguous": {"contiguous": True, "max_tokens": 7},
}  # fmt: skip
#: Promises about numbers, which residues don't have, and about further inputs.
_OF_NUMBERS = {"max_abs_score", "fully_masked_rows", "nonfinite_forbidden", "batch"}


@pytest.mark.deep
def test_every_stage_on_residues_keeps_every_promise() -> None:
    assert {f.name for f in fields(Domain)} == PROMISES.keys() | _OF_NUMBERS
    for promised in PROMISES.values():
        domain = Domain(**promised)

        def attention(q: Any, k: Any, v: Any, domain: Domain = domain) -> Any:
            sizes = {"n_q": len(q), "n_k": len(k), "d_k": q.shape[1], "d_v": v.shape[1]}
            assert domain.admits(sizes), sizes
            return programs.cast_first(q, k, v)

        runner = Target(attention, agree(attention, Request.of(Attention())))
        found = runner.semantics(Attention(), 60.0, domain)
        assert found.agrees, (promised, found.reason)


@pytest.mark.parametrize("right", [True, False])
def test_a_promise_makes_right_what_relies_on_it(right: bool) -> None:
    """Of one key the output is its value; of two it is not."""
    one_key = lambda q, k, v: v[:1] + 0 * (q[:, :1] @ v[:1])  # noqa: E731
    found = identity(one_key, Attention(), domain=Domain(max_tokens=1 if right else 2))
    assert found.agrees is right


@pytest.mark.parametrize("axes", [1, 2])
def test_axes_of_length_one_of_log_sums_are_taken_as_floats_take_them(axes: int) -> None:
    """(n, 1) in place of (n,); another axis of another length is a difference."""

    def attention(q: Any, k: Any, v: Any) -> Any:
        s = q @ k.mT * q.dtype.type(q.shape[-1] ** -0.5)
        m = s.max(-1, keepdims=True)
        e = np.exp(s - m)
        total = e.sum(-1, keepdims=True)
        sums = m + np.log(total)
        return e / total @ v, sums if axes == 1 else np.concatenate([sums, sums], -1)

    spec = Attention(lse=True)
    runner = target(attention, Request(spec=spec, dtype="float32", framework="numpy"))
    assert runner.semantics(spec, 60.0).agrees is (axes == 1)


def test_the_sizes_that_a_program_asks_for_are_tried_after_an_only_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """An edited kernel has one stage, of sizes below those of its blocks."""
    longer, tried = (Sizes(66, 131, 4, 3, 6),), []
    runner = target(lambda q, k, v: v, Request(dtype="float32", framework="numpy"))
    monkeypatch.setattr(runner, "kinds", types.SimpleNamespace(copied=False, further=lambda: longer), raising=False)

    def test(sizes: Any) -> IdentityResult:
        tried.append(sizes)
        return IdentityResult(True, Evidence(Grade.TESTED, "x", 1e-9), 1e-9)

    result = tested.tried_apart(runner, test, 60.0, (SMALL, ()))
    assert (tried, result.stages, result.settled) == ([SMALL, longer], 2, True)


@pytest.mark.parametrize("copied", [False, True])
def test_a_later_stage_that_cannot_be_computed_is_no_lack_of_time(
    monkeypatch: pytest.MonkeyPatch, copied: bool
) -> None:
    longer = (Sizes(66, 131, 4, 3, 6),)
    runner = target(lambda q, k, v: v, Request(dtype="float32", framework="numpy"))
    monkeypatch.setattr(runner, "kinds", types.SimpleNamespace(copied=copied, further=tuple, load=bool), raising=False)

    def test(sizes: Any) -> IdentityResult:
        if sizes is longer:
            raise Refused("a logarithm times a number")
        return IdentityResult(True, Evidence(Grade.TESTED, "x", 1e-9), 1e-9)

    result = tested.tried_apart(runner, test, 60.0, (SMALL, longer))
    assert (result.stages, result.agrees) == (1, True)
    assert result.stopped == "Refused: a logarithm times a number"


@pytest.mark.deep
@pytest.mark.parametrize("longest", [40, 1000])
def test_larger_sizes_of_an_edit_refute_and_prove_nothing(longest: int) -> None:
    """Keys from the 41st on are lost, which the usual sizes do not show; no function takes 1000 of them."""

    def attention(q: Any, k: Any, v: Any) -> Any:
        s = q @ k[:longest].T * q.dtype.type(q.shape[-1] ** -0.5)
        e = np.exp(s - s.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True) @ v[:longest]

    runner = target(attention, Request(dtype="float32", framework="numpy"))
    usual = runner.semantics(Attention(), 60.0)
    runner.refutes_at_large_sizes = True
    found = runner.semantics(Attention(), 60.0)
    assert usual.agrees is found.agrees is (longest > 40)
    if found.agrees:
        assert usual.stages > found.stages == 1
        assert found.evidence.grade is Grade.TESTED
        assert found.shapes == usual.shapes[: len(found.shapes)]
