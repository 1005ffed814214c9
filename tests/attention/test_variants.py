"""Every variant on every kind of array, or refused for a known reason; where axes of batches and of heads go."""

import ast
from collections import Counter
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import symattn
from symattn import Attention, InputError, Latent, Rotary, like
from symattn.attention.inputs import holds
from symattn.attention.presets import PRESETS
from symattn.attention.variants import OF_MODELS, VARIANTS
from symattn.derivations.variants import Support, shapes_in_letters, support
from tests.arrays.evaluating import compare
from tests.attention.definition import Definition, looped, norms_behind_weights, same
from tests.lanes import groups, one_in
from tests.refusals import refuses

RNG = np.random.default_rng(5)
TABLES = {"half": Rotary(given="tables"), "interleaved": Rotary(given="tables", layout="interleaved")}


def draw(*shape: int) -> Any:
    return RNG.normal(size=shape)


def one_by_one(spec: Attention, batch: tuple[int, ...], own: dict[str, int], arrays: dict[str, Any]) -> Any:
    """Each batch by itself; ``own`` says how many axes of an array are not of batches."""
    wide = {n: np.broadcast_to(x, (*batch, *x.shape[x.ndim - own[n] :])) if n in own else x for n, x in arrays.items()}
    out = [spec(**{n: x[i] if n in own else x for n, x in wide.items()}) for i in np.ndindex(*batch)]
    return np.reshape(out, (*batch, *out[0].shape))


@pytest.mark.parametrize("front", [(2, 2), (2,), (1, 2), ()])
@pytest.mark.parametrize("heads", [1, 2])
def test_tables_and_biases_with_fewer_axes_of_batches(front: tuple[int, ...], heads: int) -> None:
    """Two axes of batches, as long as each other and as the heads, so that a mistaken axis would fit."""
    spec = Attention(heads=heads, bias=True, position=Rotary(given="tables"))
    of_heads = (heads,) if heads > 1 else ()
    arrays = {n: draw(2, 2, *of_heads, m, 4) for n, m in (("q", 3), ("k", 5), ("v", 5))}
    arrays |= {"cos": draw(*front, 5, 2), "sin": draw(*front, 5, 2), "bias": draw(*front, 3, 5)}
    own = dict.fromkeys("qkv", 2 + len(of_heads)) | dict.fromkeys(("cos", "sin", "bias"), 2)
    np.testing.assert_allclose(spec(**arrays), one_by_one(spec, (2, 2), own, arrays), rtol=1e-12)


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("layout", TABLES)
@pytest.mark.parametrize("width", [4, 6])
def test_tables_with_more_axes_of_batches_than_keys(layout: str, heads: int, width: int) -> None:
    spec = Attention(heads=heads, position=TABLES[layout])
    of_heads = (heads,) if heads > 1 else ()
    arrays = {"q": draw(2, *of_heads, 3, width), "k": draw(*of_heads, 5, width), "v": draw(*of_heads, 5, 2)}
    arrays |= {"cos": draw(2, 5, 2), "sin": draw(2, 5, 2)}
    own = dict.fromkeys("qkv", 2 + len(of_heads)) | dict.fromkeys(("cos", "sin"), 2)
    np.testing.assert_allclose(spec(**arrays), one_by_one(spec, (2,), own, arrays), rtol=1e-12)


@pytest.mark.parametrize("absorbed", [True, False])
@pytest.mark.parametrize("heads", [1, 2])
def test_positions_with_more_axes_of_batches_than_the_tokens_of_a_latent(absorbed: bool, heads: int) -> None:
    """As many batches as heads: positions of batches must not be taken for those of heads."""
    spec = Attention(heads=heads, latent=Latent(absorbed=absorbed), position=Rotary(given="positions"))
    arrays = {"x": draw(2, 3, 5), "y": draw(4, 5), "w_q": draw(5, heads * 5), "w_dkv": draw(5, 3)}
    arrays |= {"w_uk": draw(3, heads * 3), "w_uv": draw(3, heads * 2), "w_kr": draw(5, 2)}
    arrays["positions"] = np.array([[0, 1, 2, 3], [5, 1, 0, 2]])
    own = {"x": 2, "y": 2, "positions": 1}
    np.testing.assert_allclose(spec(**arrays), one_by_one(spec, (2,), own, arrays), rtol=1e-12)


def test_of_values_alone_batches_are_no_batches_of_masks() -> None:
    """With heads an axis in front of a mask is one of heads where the scores have no batches."""
    spec, mask = Attention(heads=2, mask="boolean"), RNG.random((2, 3, 5)) < 0.6
    q, k, v = draw(2, 3, 4), draw(2, 5, 4), draw(2, 2, 5, 1)
    want = np.stack([spec(q, k, values, mask=mask) for values in v])
    np.testing.assert_allclose(spec(q, k, v, mask=mask), want, rtol=1e-12)
    documents = Attention(heads=2, documents=True)
    with pytest.raises(InputError, match=r"doc_q has shape \(2, 3\); it needs none before the last"):
        documents(q, k, v, doc_q=np.zeros((2, 3), int), doc_k=np.zeros((2, 5), int))


WINDOW, SORTED, ROTARY = "indexed", "indexed symbolic modular", "indexed"
REFUSED: dict[str, str] = {
    "additive": "exact", "softcap": "exact", "decoder step": "indexed exact", "base 2": "indexed exact",
    "sliding window": WINDOW, "window of two sides": WINDOW, "local blocks": WINDOW, "packed documents": WINDOW,
    "masks combined": WINDOW, "causal ReLU, not divided": SORTED, "ReLU": SORTED, "sparsemax": SORTED, "entmax": SORTED,
    "packed projections": "indexed", "latent": "indexed", "latent, absorbed": "indexed", "rotary, latent": "indexed",
    "rotary, half": ROTARY, "rotary, interleaved": ROTARY, "rotary, in part": ROTARY,
    "rotary, true frequencies": "indexed exact", "temperature by place": "indexed exact",
    "log-n scaling": "indexed exact", "RMS norm after rotation": ROTARY,
    "T5 buckets": "indexed", "Shaw": "indexed", "Transformer-XL": "indexed", "DeBERTa": "indexed",
    "norm and rotation": ROTARY, "LayerNorm and rotation in part": ROTARY, "local blocks and rotation": ROTARY,
    "length 1 after rotation, temperature": "indexed exact", "softcap and window": "indexed exact",
    "sink and window": WINDOW, "ALiBi and window": WINDOW, "packed documents, window": WINDOW,
    "linear scaling": "indexed exact", "NTK-aware scaling": "indexed exact", "YaRN": "indexed exact",
    "rotation of a share": "indexed exact", "latent with YaRN": "indexed exact",
    "rotation by sections": "indexed exact", "norm and interleaved sections": "indexed exact",
    "LongRoPE": "indexed exact modular", "Llama 3.1 scaling": "indexed exact modular",
}  # fmt: skip
EVERY = {**VARIANTS, **OF_MODELS}
KINDS = ("indexed", "symbolic", "exact", "modular", "ball", "enclosure", "float32", "gradient", "LaTeX")


def list_refusing_kinds(name: str) -> set[str]:
    """Return the kinds that refuse a variant; exact numbers hold no roots of sums of exponentials."""
    variant = EVERY[name]
    norms = norms_behind_weights(variant.spec.pipeline(variant.names))
    return {*REFUSED.get(name, "").split()} | ({"exact"} if norms else set())


LETTERS = [n for n in VARIANTS if not {"exact", "indexed"} & list_refusing_kinds(n)]


@pytest.mark.parametrize("name", one_in(6, EVERY))
def test_a_variant_runs_on_the_kinds_that_can_hold_it(name: str) -> None:
    kinds = tuple(k for k in KINDS if k != "symbolic" or EVERY[name].spec.heads == 1)  # letters of many heads: deep
    refused = {kind for kind, reason in support(name, EVERY[name], kinds).found.items() if reason is not None}
    assert refused == list_refusing_kinds(name) & set(kinds), "REFUSED names what refuses a variant"


@pytest.mark.deep
@pytest.mark.parametrize("name", [n for n, v in EVERY.items() if v.spec.heads > 1])
def test_a_variant_of_several_heads_runs_on_letters(name: str) -> None:
    assert support(name, EVERY[name], ("symbolic",)).found["symbolic"] is None


@pytest.mark.deep
@pytest.mark.parametrize("names", groups(LETTERS), ids=itemgetter(0))
def test_elements_in_letters_are_what_exact_arithmetic_gives(names: list[str]) -> None:
    for variant in map(VARIANTS.get, names):
        shapes = shapes_in_letters(variant)
        truths = tuple(n for n in shapes if holds(n, variant.spec) == "booleans")
        ones = {f: 1 for s in shapes.values() for a in s.split() for b in a.split("+") for f in b.split("*")}
        for sizes in ({"n_q": 2, "n_k": 3, "d_k": 2, "d_s": 2}, {"n_q": 1, "n_k": 2, "d_k": 2, "d_s": 2}):
            compare(lambda of=variant.spec, **given: of(**given), shapes, ones | sizes, truths)


@pytest.mark.deep
def test_fields_together_are_what_loops_give_and_each_of_them_matters() -> None:
    """A field that is set back to its default gives other numbers by loops; where it must not be, that is refused."""
    idle, plain = [], Attention()
    for name, variant in OF_MODELS.items():
        of = Definition(variant.spec, Support(name, variant).example)
        assert same(of, looped(of)), name
        # At another place the gate has another shape.
        shaped = {"heads", "kv_heads", "temperature_rate", "latent", "output_gate_place"}
        for changed in {
            f for f in plain.__dataclass_fields__ if getattr(variant.spec, f) != getattr(plain, f)
        } - shaped:
            try:
                other = replace(variant.spec, **{changed: getattr(Attention(), changed)})
            except InputError:
                continue
            idle += [(name, changed)] if same(of, looped(of, other)) else []
    assert idle == []


WRONG: dict[str, dict[str, Any]] = {
    "scaled dot": {"scale": 1}, "cosine": {"scale": 9}, "distance": {"score": "dot"}, "1/d_k": {"scale": None},
    "RMS norm of q and k": {"eps": 0}, "truncated": {"truncate": 3}, "causal": {"alignment": "top-left"},
    "sliding window": {"window": 3}, "window of two sides": {"window": (1, 0)}, "prefix": {"prefix": 5},
    "sink": {"sink": None}, "softmax off by one": {"sink": None}, "ReLU": {"normaliser": "softmax"},
    "sparsemax": {"normaliser": "entmax"}, "dropout": {"dropout": 0.5},
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_another_specification_gives_another_value(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison with balls sees it."""
    of = Support(name, VARIANTS[name])
    fields = WRONG[name]
    names = [n for n in of.example if not (n == "sink" and "sink" in fields)]
    other = replace(VARIANTS[name], spec=replace(VARIANTS[name].spec, **fields), given=" ".join(names))
    balls, right = of.balls, of.run(np.asarray)[0]
    monkeypatch.setattr(Support, "balls", property(lambda wrong: balls))
    wrong = support(name, other, ("exact", "float32"))
    assert wrong.found["exact"] == "gives another value"
    if name not in ("ReLU", "sparsemax"):
        assert wrong.found["float32"] is None  # NumPy against the same definition
        assert not np.array_equal(wrong.run(np.asarray)[0], right)


def test_every_field_is_in_some_variant() -> None:
    plain = Attention()
    told = {f for f in plain.__dataclass_fields__ for v in EVERY.values() if getattr(v.spec, f) != getattr(plain, f)}
    assert told == set(plain.__dataclass_fields__) - {"fully_masked"}


def test_a_variant_names_its_inputs_and_no_others() -> None:
    for name, variant in VARIANTS.items():
        example = Support(name, variant).example
        variant.spec(**example)
        lone = replace(variant, spec=replace(variant.spec, padding=not variant.spec.padding))
        refuses(lone.spec, says="keep", **example)


# -- named models ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_runs_with_fewer_heads(name: str) -> None:
    spec = PRESETS[name].spec
    groups = spec.heads // spec.key_heads
    small = like(name, heads=2 * groups, kv_heads=2 if groups > 1 else None)
    assert small.heads // small.key_heads == groups
    names = {"packed": "x w_in b_in w_o b_o", "latent": "x w_dq w_uq w_dkv w_uk w_uv w_kr w_o"}
    given = next((names[f] for f in names if getattr(spec, f)), "x w_q w_k w_v w_o")
    given += " keep" * spec.padding + " sink" * (spec.sink is not None) + " b_rel" * (name == "t5")
    sizes = {"n_b": 32, "d_v": 4} if spec.packed or name == "t5" else {}
    variant = replace(VARIANTS["self-attention"], spec=small, given=given, sizes=sizes)
    out = Support(name, variant).run(np.asarray)[0]
    assert out.shape == (3, 8)
    assert np.isfinite(out).all()


def test_presets_differ_and_say_where_they_are_from() -> None:
    assert len({p.spec for p in PRESETS.values()}) == len(PRESETS)
    assert all(p.source[-1] in ")0123456789" and "(20" in p.source for p in PRESETS.values())
    assert like("deepseek-v3").latent == Latent(queries=True, norm="rms", eps=like("qwen3").eps)
    refuses(like, "gpt5", says="unknown model 'gpt5'; did you mean gpt2?")


def test_refusals_name_what_is_lacking() -> None:
    reasons = support("base 2", VARIANTS["base 2"], ("indexed",)).found
    assert "indexed lacks exp2" in str(reasons["indexed"])


# -- names -------------------------------------------------------------------------------------------------------------
def list_repeated_keys(source: str) -> list[Any]:
    """The keys that a dict literal has twice: Python keeps the last one, and says nothing."""
    dicts = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Dict)]
    keys = [[key.value for key in found.keys if isinstance(key, ast.Constant)] for found in dicts]
    return [key for each in keys for key, times in Counter(each).items() if times > 1]


def test_no_name_has_two_rows() -> None:
    folder = Path(symattn.__file__).parent / "attention"
    sources = {path.name: path.read_text(encoding="utf-8") for path in folder.rglob("*.py")}
    assert {name: keys for name, source in sources.items() if (keys := list_repeated_keys(source))} == {}
    table = sources["letters_of_attention.py"]
    added = table.replace('    "sink": Named(', '    "tau": Named("t", "Title", "h"),\n    "sink": Named(', 1)
    assert list_repeated_keys(added) == ["tau"]
