"""Parameters are matched by name, by position where names say nothing, and what stays open is refused."""

import functools
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from inspect import Parameter, Signature
from itertools import product
from typing import Any, Literal

import numpy as np
import pytest
import sympy

from symattn import (
    Attention,
    Block,
    InputError,
    Latent,
    LayerNorm,
    LinearAttention,
    Merge,
    RMSNorm,
    Rotary,
    Shaw,
    verify,
)
from symattn.attention.codec.field_values import field_of
from symattn.attention.letters_of_attention import ARRAYS
from symattn.attention.variants import VARIANTS
from symattn.programs.calling import agree
from symattn.programs.request import Request
from symattn.programs.specifications import definitions_of
from symattn.programs.target import target
from symattn.programs.verifying import Options, requested
from tests import refusals
from tests.annotations import annotated
from tests.letters import needed_by

pytestmark = pytest.mark.smoke


def printed(function: Callable[..., Any], **request: Any) -> str:
    return agree(function, Request(**request)).printed


def refusal(function: Callable[..., Any], **request: Any) -> str:
    return refusals.refusal(agree, function, Request(**request), "attention")


class Callable3:
    def __call__(self, query: Any, key: Any, value: Any) -> Any: ...


def wrapped(*args: Any, **kwargs: Any) -> Any: ...


def keywords_only(*, v: Any, q: Any, k: Any) -> Any: ...


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda q, k, v: v, "q, k, v"),
        (lambda query, key, value: value, "q, k, v"),
        (lambda Q, K, V: V, "q, k, v"),
        (lambda queries, keys, values: values, "q, k, v"),
        (lambda k, q, v: v, "k, q, v"),
        (lambda v, k, q, scale=None: v, "v, k, q"),
        (lambda a, b, c: c, "q, k, v"),
        (lambda a, b, c, eps=0: c, "q, k, v"),
        (lambda x, w_q, w_k, w_v: x, "x, w_q, w_k, w_v"),
        (lambda x, W_Q, Wk, v_proj_weight, w_o=None, b_o=None: x, "x, w_q, w_k, w_v, w_o=w_o, b_o=b_o"),
        (lambda w_q, w_k, w_v, x, y=None: x, "w_q, w_k, w_v, x, y=y"),
        (lambda x: x, "x"),
        (Callable3(), "q, k, v"),
        (Callable3().__call__, "q, k, v"),
        (wrapped, "q, k, v"),
        (lambda *args: args, "q, k, v"),
        (keywords_only, "v=v, q=q, k=k"),
        (lambda q, scale=1, *, k, v: v, "q, k=k, v=v"),
    ],
)
def test_inputs(function: Callable[..., Any], words: str) -> None:
    assert printed(function) == words


def test_defaults_and_positions_mix() -> None:
    convention = agree(lambda q, k=None, v=None: q, Request())
    assert convention.printed == "q, k=k, v=v"
    assert convention.inputs == ("q", "k", "v")
    assert convention.required == ("q",)


def test_positional_only() -> None:
    def attention(query: Any, key: Any, value: Any, scale: Any = None, /) -> Any: ...

    assert printed(attention) == "q, k, v"


def test_a_builtin_whose_signature_cannot_be_read() -> None:
    assert printed(max) == "q, k, v"
    assert printed(max, call=(("key", None),)) == "q, k, v, key=None"


def test_a_builtin_whose_documentation_has_the_signature() -> None:
    class Builtin:
        __name__ = "sdpa"
        __signature__ = "none"
        __doc__ = (
            "sdpa(query, key, value, attn_mask=None, dropout_p=0.0,\n    is_causal=False, *, scale=None) -> Tensor:\n"
        )

        def __call__(self) -> None: ...

    assert printed(Builtin(), causal=True, scale=0.5) == "q, k, v, is_causal=True, scale=0.5"
    assert "no parameter is_casual that can be named; did you mean is_causal?" in refusal(
        Builtin(), call=(("is_casual", True),)
    )


@pytest.mark.parametrize(
    ("function", "request_", "words"),
    [
        (lambda q, k, v, causal=False: v, {"causal": True}, "q, k, v, causal=True"),
        (lambda q, k, v, causal=True: v, {}, "q, k, v, causal=False"),
        (lambda q, k, v, is_causal: v, {"causal": True}, "q, k, v, True"),
        (lambda q, k, v, scale=None: v, {"scale": 0.25}, "q, k, v, scale=0.25"),
        (lambda q, k, v, softmax_scale=None: v, {}, "q, k, v"),
        (lambda q, k, v, n_heads=1: v, {"heads": 2}, "q, k, v, n_heads=2"),
        (lambda q, k, v, num_heads: v, {}, "q, k, v, 1"),
        (lambda q, k, v, dropout_p: v, {}, "q, k, v, 0.0"),
        (lambda q, k, v, dropout_p=0.1: v, {}, "q, k, v"),
        (lambda q, k, v, scale=None: v, {"scale": 0.25, "call": (("scale", 2),)}, "q, k, v, scale=2"),
        (lambda q, k, v, **more: v, {"call": (("backend", "fast"),)}, "q, k, v, backend='fast'"),
        (lambda q, k, v, start_pos: v, {}, "q, k, v, n_k − n_q"),
        (lambda q, k, v, past_len=0: v, {}, "q, k, v, past_len=n_k − n_q"),
        (lambda q, k, v, seqlen_q, seqlen_k: v, {}, "q, k, v, n_q, n_k"),
        (lambda q, k, v, scale, head_dim: v, {}, "q, k, v, 1/√d_k, d_k"),
        (lambda q, k, v, n_rep: v, {"spec": Attention(heads=6, kv_heads=2)}, "q, k, v, 3"),
        (lambda q, k, v, return_lse=False: v, {}, "q, k, v"),
        (lambda q, k, v, return_lse=True, need_weights=True: v, {}, "q, k, v, return_lse=False, need_weights=False"),
        (lambda q, k, v, return_lse=False: v, {"spec": Attention(lse=True)}, "q, k, v, return_lse=True"),
        (lambda q, k, v, tile: v, {}, "q, k, v, 16"),
        (lambda q, k, v, tile=3: v, {}, "q, k, v"),
        (lambda q, k, v, theta=1e4: v, {"spec": Attention(position=Rotary(base=500))}, "q, k, v, theta=500"),
        (lambda q, k, v, interleaved=True: v, {"spec": Attention(position=Rotary())}, "q, k, v, interleaved=False"),
    ],
)
def test_settings(function: Callable[..., Any], request_: dict[str, Any], words: str) -> None:
    assert printed(function, **request_) == words


def exact(name: str) -> Attention:
    """A variant with a number in this field, as a fraction."""
    specs = [variant.spec for variant in VARIANTS.values() if isinstance(getattr(variant.spec, name), int | float)]
    spec = next(spec for spec in specs if getattr(spec, name))
    return replace(spec, **{name: Fraction(str(getattr(spec, name)))})


def settings_of(name: str) -> list[Any]:
    """The value that a function with a parameter for this field is passed, if any."""

    def function(*arrays: Any, **settings: Any) -> Any: ...

    needed = sorted(needed_by(exact(name)))
    arrays = [Parameter(n, Parameter.POSITIONAL_OR_KEYWORD) for n in (*"qkv", *needed)]
    setting = Parameter(name, Parameter.KEYWORD_ONLY, default=None)
    function.__signature__ = Signature([*arrays, setting])  # type: ignore[attr-defined]
    return [a.value for a in agree(function, Request.of(exact(name))).arguments if a.parameter == name]


#: Fields whose value may be a fraction, and that users' functions may take as a parameter.
FRACTIONS = [name for name, types in annotated(Attention).items() if Fraction in types and settings_of(name)]


def test_numbers_of_a_specification_that_code_takes_are_known() -> None:
    assert {"scale", "softcap", "dropout", "eps"} <= {*FRACTIONS}


@pytest.mark.parametrize("name", FRACTIONS)
def test_exact_numbers_of_a_specification_reach_code_as_floats(name: str) -> None:
    (value,) = settings_of(name)
    assert type(value) is float
    assert value == float(getattr(exact(name), name))


def test_the_base_of_a_position_reaches_code_as_a_float() -> None:
    spec = Attention(position=Rotary(base=Fraction(20001, 2)))
    convention = agree(lambda q, k, v, *, rope_theta=None: v, Request.of(spec))
    (value,) = (a.value for a in convention.arguments if a.parameter == "rope_theta")
    assert (type(value), value) == (float, 10000.5)


@pytest.mark.parametrize(
    "spec",
    [
        Attention(lse=True, softcap=Fraction(30), scale=Fraction(1, 8), window=(3, 0)),
        LayerNorm(eps=Fraction(1, 10**5)),
        RMSNorm(eps=Fraction(1, 10**5)),
        Block(attention=Attention(), eps=Fraction(1, 10**5)),
        Rotary(base=Fraction(20001, 2), width=4),
        Merge(base=2),
    ],
)
def test_numbers_of_definitions_reach_code_as_floats(spec: Any) -> None:
    subject, passed = next(definitions_of(spec)), dict[str, Any]()

    def function(*arrays: Any, **settings: Any) -> Any:
        passed.update(settings)
        return arrays[0]

    inputs = [Parameter(i.name.replace(".", "_"), Parameter.POSITIONAL_OR_KEYWORD) for i in subject.inputs]
    settings = [Parameter(name, Parameter.KEYWORD_ONLY, default=None) for name in subject.settings]
    function.__signature__ = Signature([*inputs, *settings])  # type: ignore[attr-defined]
    arrays = {i.name: np.zeros([4] * max(len(i.shape.split()), 2)) for i in subject.inputs}
    assert target(function, requested(spec, framework="numpy")).run(arrays).error is None
    assert passed
    for value in passed.values():
        for one in value if isinstance(value, tuple) else (value,):
            assert type(one) in (int, float, bool, str, type(None)), (spec, passed)


@pytest.mark.deep
@pytest.mark.parametrize(("name", "wrong"), [("softcap", False), ("softcap", True), ("dropout", False)])
def test_code_that_looks_at_the_type_of_its_numbers_is_judged(name: str, wrong: bool) -> None:
    def attention(q: Any, k: Any, v: Any, drop: Any = None, softcap: Any = None, dropout: Any = None) -> Any:
        if not all(x is None or isinstance(x, float) for x in (softcap, dropout)):
            raise TypeError("a float is needed")
        s = q @ k.mT * q.dtype.type(q.shape[-1] ** -0.5)
        s = s if softcap is None else softcap * np.tanh(s / softcap)
        e = np.exp(s - s.max(-1, keepdims=True))
        p = e / e.sum(-1, keepdims=True)
        p = p if dropout is None else np.where(drop, p / q.dtype.type(1 - dropout), 0)
        return p @ v * q.dtype.type(1.01 if wrong else 1)

    report = verify(attention, exact(name), framework="numpy", examples=0)
    assert report.verdict.value == ("fault" if wrong else "no fault")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [("softcap", Fraction(30), 30.0), ("scale", sympy.Rational(1, 4), 0.25), ("softcap", np.float32(0.5), 0.5),
     ("heads", np.int64(4), 4), ("window", (np.int64(3), None), (3, None)), ("causal", True, True),
     ("window", (sympy.Integer(3), sympy.Integer(0)), (3, 0))],
)  # fmt: skip
def test_kinds_of_numbers(name: str, value: Any, expected: Any) -> None:
    def function(q: Any, k: Any, v: Any, *, softcap: Any = 0, scale: Any = 0, window: Any = 0, heads: Any = 0,
                 causal: Any = 0) -> Any: ...  # fmt: skip

    arguments = agree(function, Request.of(Attention(**{name: value}))).arguments
    (outcome,) = (a.value for a in arguments if a.parameter == name)
    assert outcome == expected
    assert type(outcome) is type(expected)
    if isinstance(outcome, tuple):
        assert list(map(type, outcome)) == list(map(type, expected))


def test_what_partial_has_fixed_is_told_already() -> None:
    def attention(q: Any, k: Any, v: Any, causal: bool = False) -> Any: ...

    assert printed(functools.partial(attention, causal=True)) == "q, k, v"
    assert printed(functools.partial(attention, causal=True), call=(("causal", False),)) == "q, k, v, causal=False"


@pytest.mark.parametrize(
    ("function", "request_", "words"),
    [
        (lambda q, k, v, mask=None: v, {}, "q, k, v"),
        (lambda q, k, v, mask: v, {}, "q, k, v, None"),
        (lambda q, k, v, mask: v, {"masks": ("mask",)}, "q, k, v, mask"),
        (lambda q, k, v, attn_mask=None: v, {"masks": ("mask",)}, "q, k, v, attn_mask=mask"),
        (lambda q, k, v, m=None: v, {"masks": ("mask",), "mask_arg": "m"}, "q, k, v, m=mask"),
        (lambda q, k, v, m=None: v, {"masks": ("mask",), "mask_arg": "~m"}, "q, k, v, m=not mask"),
        (lambda q, k, v, **more: v, {"masks": ("mask",), "mask_arg": "m"}, "q, k, v, m=mask"),
        (lambda q, k, v, mask=None, keep=None: v, {"masks": ("mask", "keep")}, "q, k, v, mask=mask, keep=keep"),
        (
            lambda q, k, v, key_padding_mask=None: v,
            {"masks": ("keep",), "mask_arg": "~key_padding_mask"},
            "q, k, v, key_padding_mask=not keep",
        ),
        (
            lambda q, k, v, bias=None, keep=None: v,
            {"masks": ("mask", "keep"), "mask_arg": "bias"},
            "q, k, v, bias=mask, keep=keep",
        ),
        (lambda q, k, v, m=None: v, {"causal": True, "mask_arg": "m"}, "q, k, v, m=causal mask"),
        (lambda q, k, v, mask: v, {"causal": True}, "q, k, v, causal mask"),
        (lambda q, k, v, key_padding_mask=None: v, {"masks": ("keep",)}, "q, k, v, key_padding_mask=not keep"),
        (lambda q, k, v, attention_mask=None: v, {"masks": ("keep",)}, "q, k, v, attention_mask=keep"),
        (lambda q, k, v, seq_lens: v, {"masks": ("keep",)}, "q, k, v, number of valid keys"),
        (lambda q, k, v, may=None: v, {"masks": ("mask",)}, "q, k, v, may=mask"),
        (lambda a, b, c, d: a, {"masks": ("mask",)}, "q, k, v, mask"),
        (lambda q, k, v, mask, causal: v, {"causal": True}, "q, k, v, None, True"),
        (lambda q, k, v, m=None, causal=False: v, {"causal": True, "mask_arg": "m"}, "q, k, v, m=causal mask"),
    ],
)
def test_masks(function: Callable[..., Any], request_: dict[str, Any], words: str) -> None:
    assert printed(function, **request_) == words


def test_the_causal_mask_is_no_input_that_a_caller_gives() -> None:
    convention = agree(lambda q, k, v, mask: v, Request(causal=True))
    assert convention.inputs == ("q", "k", "v")
    assert convention.printed == "q, k, v, causal mask"


@pytest.mark.parametrize(
    ("function", "request_", "words"),
    [
        (lambda a, b: a, {}, "attention(a, b): the names do not say which parameters are q, k, v"),
        (lambda a, b, c, d: a, {}, "name them so, or give a function of q, k, v alone"),
        (lambda v, a, q: a, {}, "the names do not say"),
        (lambda: 0, {}, "the names do not say"),
        (lambda q, k, v, temperature: v, {}, "no value is known for temperature; say --call temperature=VALUE"),
        (lambda q, k, v, scale: v, {"spec": Attention(scale="1/d_k")}, "no value is known for scale"),
        (lambda q, k, v: v, {"masks": ("mask",)}, "no parameter for the specification's mask is known"),
        (lambda q, k, v, a=None, b=None: v, {"masks": ("mask",)}, "no parameter for the specification's mask is known"),
        (lambda a, b, c, d: a, {"masks": ("mask", "keep")}, "no value is known for d"),
        (lambda q, k, v, mask=None: v, {"masks": ("mask", "keep")}, "no parameter for the specification's keep"),
        (lambda q, k, v: v, {"mask_arg": "m"}, "has no parameter m"),
        (lambda q, k, v, m: v, {"mask_arg": "m"}, "the specification has no mask"),
        (lambda q, k, v, causal=0: v, {"call": (("casual", True),)}, "did you mean causal?"),
        (lambda q, k, v, m: v, {"mask_arg": "m", "call": (("m", 1),), "masks": ("mask",)}, "set twice"),
    ],
)
def test_what_stays_open_is_refused(function: Callable[..., Any], request_: dict[str, Any], words: str) -> None:
    assert words in refusal(function, **request_)


@pytest.mark.parametrize(
    ("function", "option", "spec"),
    [
        (lambda q, k, v, position_bias: v, "--bias", Attention(bias=True)),
        (lambda q, k, v, sinks: v, "--sink given", Attention(sink="given")),
        (lambda q, k, v, gate: v, "--output-gate", Attention(output_gate=True)),
        (lambda q, k, v, cos, sin: v, "--position rotary:given=tables", Attention(position=Rotary(given="tables"))),
        (lambda q, k, v, a_k, a_v: v, "--position shaw:most=N", Attention(position=Shaw(most=2))),
    ],
)
def test_a_hint_names_the_option_that_gives_the_input(
    function: Callable[..., Any], option: str, spec: Attention
) -> None:
    assert refusal(function).endswith(f"; hint: if the definition has this input, say {option}")
    assert agree(function, Request.of(spec)).printed


#: Inputs that depend on fields; those left out are known without any: a mask is none, and a scale that of the width.
_OF_FIELDS = [name for name, row in ARRAYS.items() if row.needed or row.optional]


@pytest.mark.parametrize("name", [name for name in _OF_FIELDS if name not in ("mask", "keep", "scale")])
def test_the_option_of_an_input_gives_it(name: str) -> None:
    def function(*arrays: Any) -> Any: ...

    parameters = [Parameter(n, Parameter.POSITIONAL_OR_KEYWORD) for n in (*"qkv", name)]
    function.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    fields: dict[str, Any] = {}
    options = refusal(function).partition("; hint: if the definition has this input, say --")[2]
    for option in options.split(" --"):
        field, _, value = option.replace("NUMBER", "1/4").replace("=N", "=2").partition(" ")
        field, first = field.replace("-", "_"), value.partition(", or ")[0]
        fields[field] = field_of(Attention, field, first or True, option)
    one, without = np.ones((2, 2)), f"the specification has no input {name!r}"
    refusals.refuses(Attention(), one, one, one, says=without, **{name: one})
    spec, said = Attention(**fields), ""
    # What is refused first may be another input.
    condition = ARRAYS[name].needed or ARRAYS[name].optional
    value = getattr(spec, condition.field)
    assert value
    assert condition.fits(value)
    needed = dict.fromkeys(needed_by(spec), one)
    try:
        spec(one, one, one, **needed, **{name: one} if name not in needed else {})
    except InputError as error:  # tokens may be needed besides, or another shape
        said = str(error)
    assert without not in said


_OF_LATENTS = ("x", "w_q", "w_dq", "w_uq", "w_dkv", "w_uk", "w_uv", "w_kr", "g_ckv", "g_cq")


@pytest.mark.parametrize("absorbed", [False, True])
@pytest.mark.parametrize("queries", [False, True])
@pytest.mark.parametrize("norm", [None, "rms"])
def test_latents_get_what_they_are_computed_from_or_are_refused(
    absorbed: bool, queries: bool, norm: Literal["rms"] | None
) -> None:
    spec = Attention(heads=2, latent=Latent(absorbed=absorbed, queries=queries, norm=norm))
    agreed = set()
    for left_out in product(*([(), (name,)] for name in _OF_LATENTS)):
        names = [name for name in _OF_LATENTS if (name,) not in left_out]
        function = eval(f"lambda {', '.join(names)}: 0")
        try:
            inputs = agree(function, Request.of(spec), "attention").inputs
        except InputError:
            continue
        known = set(inputs)
        for step in spec.pipeline(frozenset(inputs)):
            assert known.issuperset(step.of), (inputs, step)
            known.add(step.name)
        agreed.add(inputs)
    # The queries come from a latent or from a matrix; a norm may have gains.
    from_queries = ("w_dq", "w_uq") if queries else ("w_q",)
    assert ("x", *from_queries, "w_dkv", "w_uk", "w_uv", "w_kr") in agreed
    assert len(agreed) == (1 if norm is None else 4 if queries else 2)


def test_names_of_other_definitions_lead_to_these() -> None:
    assert "--like gated-deltanet" in refusal(lambda q, k, v, g, beta: v)
    assert refusal(lambda q, k, v, k_cache, v_cache: v).endswith("say --definition cached")


def test_notes_where_torch_means_another_alignment() -> None:
    def sdpa(q: Any, k: Any, v: Any, is_causal: bool = False) -> Any: ...

    assert "top-left" in agree(sdpa, Request(causal=True, framework="torch")).notes[0]
    assert "top-left" in agree(sdpa, Request(call=(("is_causal", True),), framework="torch")).notes[0]
    assert agree(sdpa, Request(causal=True, alignment="top-left", framework="torch")).notes == ()
    assert agree(sdpa, Request(causal=True, framework="numpy")).notes == ()
    assert agree(sdpa, Request()).notes == ()


def test_a_note_where_a_mask_could_have_carried_causality() -> None:
    notes = agree(lambda q, k, v, mask=None: v, Request(causal=True)).notes
    assert notes == ("mask is not passed: --mask-arg mask would pass the causal mask",)


def test_a_request_of_a_specification() -> None:
    spec = Attention(scale=Fraction(1, 4), causal=True, mask="boolean", padding=True, heads=2, alignment="top-left")
    assert Request.of(spec, dtype="float32") == Request(
        "float32", masks=("mask", "keep"), causal=True, alignment="top-left", scale=0.25, heads=2
    )
    assert Request.of(Attention()) == Request()


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("is_causal=true", "is_causal", True),
        ("a=False", "a", False),
        ("mask=none", "mask", None),
        ("scale=0.5", "scale", 0.5),
        ("n=-3", "n", -3),
        ("word='a=b'", "word", "a=b"),
        ("shape=(1, 2)", "shape", (1, 2)),
    ],
)
def test_keywords(text: str, name: str, value: object) -> None:
    settings = printed(lambda q, k, v, **more: v, **{"call": Options(call=[text]).request(Attention()).call})
    assert settings == f"q, k, v, {name}={value!r}"


@pytest.mark.parametrize("text", ["is_causal", "=3", "a-b=3", "a=", "a=word", "a=__import__('os')", "a=" + "(" * 500])
def test_keywords_that_are_none(text: str) -> None:
    with pytest.raises(InputError, match="--call"):
        Options(call=[text]).request(Attention())


def test_bounds_are_of_queries_and_of_keys_where_there_is_one_for_either() -> None:
    def inputs(function: Callable[..., Any]) -> list[str | None]:
        return [a.input for a in agree(function, Request(spec=Attention(documents=True))).arguments[3:]]

    assert inputs(lambda q, k, v, cu_seqlens_q, cu_seqlens_kv: v) == ["doc_q", "doc_k"]
    assert inputs(lambda q, k, v, cu_seqlens: v) == ["doc"]
    assert inputs(lambda q, k, v, cu_seqlens_q: v) == ["doc"]


def test_letters_as_they_are_written_come_first() -> None:
    fields = {"feature": "identity", "normalised": False, "delta": True, "gate": "token"}
    raw = LinearAttention(**fields, gate_form="softplus", beta_form="sigmoid")
    # B would be the keys, as in Mamba; required names that stand for nothing could only be refused.
    for function in (lambda q, k, v, *, a, b, A_log, dt_bias: v, lambda C, B, x, *, a, b, A_log, dt_bias: x):
        how = target(function, requested(raw, layout="bnhd", framework="numpy")).convention
        assert how.inputs == ("q", "k", "v", "g", "beta", "A_log", "dt_bias")
