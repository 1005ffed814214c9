"""Kernels that take several requests in one call, write into outputs they are given, or have computed axes."""

import json
from pathlib import Path
from typing import Any

import pytest

from symattn import Attention, InputError, judge, reports
from symattn.programs.judging.definition_file import read_definition
from symattn.programs.judging.workloads import read_workloads

HEADS, KV_HEADS, WIDTH = 4, 2, 8
#: One request, as the references below compute it: the output, and logarithms to the base 2.
ONE = """
import math, torch

def one(q, k, v, scale, causal):
    k, v = (a.float().repeat_interleave(q.shape[1] // a.shape[1], 1) for a in (k, v))
    s = torch.einsum("qhd,khd->hqk", q.float(), k) * scale
    if causal:
        allowed = torch.arange(len(k)) <= torch.arange(len(q))[:, None] + len(k) - len(q)
        s = s.masked_fill(~allowed, -math.inf)
    out = torch.einsum("hqk,khd->qhd", torch.softmax(s, -1), v)
    return out.to(q.dtype), torch.logsumexp(s, -1).T / math.log(2)
"""
RAGGED = """
def run(q, k, v, qo_indptr, kv_indptr, sm_scale):
    ends = zip(qo_indptr[:-1], qo_indptr[1:], kv_indptr[:-1], kv_indptr[1:])
    parts = [one(q[a:b], k[c:d], v[c:d], sm_scale, True) for a, b, c, d in ends]
    return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])
"""
PAGED = """
def run(q, k_cache, v_cache, kv_indptr, kv_indices, kv_last_page_len, sm_scale):
    parts = []
    for i in range(len(q)):
        pages = kv_indices[kv_indptr[i] : kv_indptr[i + 1]].long()
        n = (len(pages) - 1) * k_cache.shape[1] + int(kv_last_page_len[i])
        k, v = (cache[pages].flatten(0, 1)[:n] for cache in (k_cache, v_cache))
        parts.append(one(q[i : i + 1], k, v, sm_scale, False))
    return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])
"""
TABLE = """
def run(q, k_cache, v_cache, block_table, seq_lens, sm_scale):
    parts = []
    for i, n in enumerate(seq_lens.tolist()):
        k, v = (cache[block_table[i].long()].flatten(0, 1)[:n] for cache in (k_cache, v_cache))
        parts.append(one(q[i : i + 1], k, v, sm_scale, False))
    return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])
"""
LATENTS = """
def run(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, kv_last_page_len, sm_scale):
    parts = []
    for i in range(len(q_nope)):
        pages = kv_indices[kv_indptr[i] : kv_indptr[i + 1]].long()
        n = (len(pages) - 1) * ckv_cache.shape[1] + int(kv_last_page_len[i])
        c, p = (cache[pages].flatten(0, 1)[:n, None] for cache in (ckv_cache, kpe_cache))
        q, k = torch.cat([q_nope[i : i + 1], q_pe[i : i + 1]], -1), torch.cat([c, p], -1)
        parts.append(one(q, k, c, sm_scale, False))
    return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])
"""
#: For each reference its inputs, and mistakes as replacements in its text.
KERNELS = {
    "ragged": (
        RAGGED,
        {"q": "tH", "k": "sG", "v": "sG", "qo_indptr": "r", "kv_indptr": "r", "sm_scale": ""},
        (
            ("kv_indptr[:-1], kv_indptr[1:]", "kv_indptr[:-1] * 0, kv_indptr[1:]"),
            ("c:d], v[c:d]", "c:d], v[c:d].flip(0)"),
        ),
    ),
    "paged": (
        PAGED,
        {"q": "tH", "k_cache": "spG", "v_cache": "spG", "kv_indptr": "r", "kv_indices": "i", "kv_last_page_len": "t",
         "sm_scale": ""},
        (
            ("int(kv_last_page_len[i])", "k_cache.shape[1]"),
            ("kv_indices[kv_indptr[i] : kv_indptr[i + 1]]", "torch.arange(kv_indptr[i], kv_indptr[i + 1])"),
        ),
    ),
    "table": (
        TABLE,
        {"q": "tH", "k_cache": "spG", "v_cache": "spG", "block_table": "tw", "seq_lens": "t", "sm_scale": ""},
        (("enumerate(seq_lens.tolist())", "enumerate([int(seq_lens.max())] * len(q))"),),
    ),
    "latents": (
        LATENTS,
        {"q_nope": "tHc", "q_pe": "tHe", "ckv_cache": "spc", "kpe_cache": "spe", "kv_indptr": "r", "kv_indices": "i",
         "kv_last_page_len": "t", "sm_scale": ""},
        (
            ("c, sm_scale", "c.roll(1, -1), sm_scale"),
            ("q_pe[i : i + 1]", "q_pe[i : i + 1] * 1.01"),
        ),
    ),
}  # fmt: skip
AXES = {
    **{name: {"type": "var"} for name in "tsriw"},
    "H": {"type": "const", "value": HEADS},
    "G": {"type": "const", "value": KV_HEADS},
    "all": {"type": "const", "value": HEADS * WIDTH},
    "d": {"type": "expr", "expression": "all // H"},
    "p": {"type": "const", "value": 4},
    "c": {"type": "const", "value": 10},
    "e": {"type": "const", "value": 6},
}


def definition(text: str, inputs: dict[str, str], **more: object) -> dict[str, object]:
    def array(axes: str) -> dict[str, object]:
        shape = [*axes, "d"] if axes[-1:] in ("H", "G") else list(axes) or None
        return {"shape": shape, "dtype": "float32" if axes[-1:] in ("H", "G", "c", "e", "") else "int32"}

    wide = "c" if "q_nope" in inputs else "d"
    outputs = {
        "output": {"shape": ["t", "H", wide], "dtype": "float32"},
        "lse": {"shape": ["t", "H"], "dtype": "float32"},
    }
    given = {name: array(axes) for name, axes in inputs.items()}
    return {
        "name": "x",
        "op_type": None,
        "axes": AXES,
        "inputs": given,
        "outputs": outputs,
        "reference": ONE + text,
    } | more


def written(folder: Path, content: object) -> str:
    path = folder / "definition.json"
    path.write_text(json.dumps(content))
    return str(path)


def kernel_of(folder: Path, inputs: dict[str, str], **more: object) -> Any:
    return read_definition(written(folder, definition("", inputs, **more)))


@pytest.mark.torch
@pytest.mark.deep
@pytest.mark.long
@pytest.mark.parametrize("name", KERNELS)
def test_each_request_of_a_call_is_judged(name: str, tmp_path: Path) -> None:
    text, inputs, mistakes = KERNELS[name]
    reference, kernel = written(tmp_path, definition(text, inputs)), tmp_path / "kernel.py"
    kernel.write_text(ONE + text)
    right = judge(str(kernel), reference=reference, examples=3)
    assert right.passed, right
    kv_heads = 1 if name == "latents" else KV_HEADS
    assert f"heads={HEADS}, kv_heads={kv_heads}" in right.definition, right.definition
    assert ("causal=True" in right.definition) is (name == "ragged")
    for good, bad in mistakes:
        assert good in text
        kernel.write_text(ONE + text.replace(good, bad))
        wrong = judge(str(kernel), reference=reference, examples=3)
        assert wrong.status is reports.Status.FAIL, wrong


@pytest.mark.torch
@pytest.mark.deep
def test_outputs_may_be_given_to_be_written(tmp_path: Path) -> None:
    text, inputs, _ = KERNELS["ragged"]
    reference, kernel = written(tmp_path, definition(text, inputs)), tmp_path / "kernel.py"
    into = ONE + text.replace("def run(", "def returned(")
    into += "\ndef run(q, k, v, qo_indptr, kv_indptr, sm_scale, output, lse):\n"
    into += "    out, logs = returned(q, k, v, qo_indptr, kv_indptr, sm_scale)\n    lse.copy_(logs)\n"
    kernel.write_text(f"{into}    output.copy_(out)\n")
    assert judge(str(kernel), reference=reference, examples=3).passed
    kernel.write_text(f"{into}    output[1:] = out[1:]\n    output[0] = 0\n    output[-4:-1] = 0\n")
    assert judge(str(kernel), reference=reference, examples=3).status is reports.Status.FAIL


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (
            {"q_nope": "tH", "q_pe": "tH", "ckv_cache": "sp", "kv_indptr": "r", "kv_indices": "i"},
            "q_nope, q_pe, ckv_cache",
        ),
        (
            {
                "q_nope": "tHc",
                "q_pe": "tHd",
                "ckv_cache": "spc",
                "kpe_cache": "spe",
                "kv_indptr": "r",
                "kv_indices": "i",
                "kv_last_page_len": "t",
            },
            "have no constant widths that the queries share",
        ),
        ({"q": "tH", "k": "sG", "v": "sG", "kv_indptr": "r", "slopes": "H"}, "inputs slopes are not read"),
        ({"q": "tH", "k": "sG", "v": "sG", "qo_indptr": "r", "kv_indptr": "r", "mask": "ws"}, "axes w, s of mask"),
        ({"q": "tH", "k": "sG", "v": "sG", "qo_indptr": "r"}, "qo_indptr alone"),
        ({"q": "tH", "k_cache": "spG", "v_cache": "spG", "kv_indptr": "r", "kv_indices": "i"}, "last page of 4"),
        ({"q": "tH", "k_cache": "sG", "v_cache": "sG", "kv_indptr": "r", "kv_indices": "i"}, "k_cache has no axes"),
        ({"q": "tH", "k": "sG", "kv_indptr": "r", "qo_indptr": "r"}, "no input is v"),
    ],
)
def test_requests_that_are_not_read_are_refused_by_name(tmp_path: Path, inputs: dict[str, str], words: str) -> None:
    reference = written(tmp_path, definition("", inputs))
    judgement = judge(str(tmp_path / "kernel.py"), reference=reference)
    assert judgement.status is reports.Status.INVALID_REFERENCE
    assert words in judgement.reason


@pytest.mark.torch
def test_attention_of_any_arrays_is_one_of_latents(tmp_path: Path) -> None:
    import torch

    _, inputs, _ = KERNELS["latents"]
    names: dict[str, object] = {}
    exec(ONE + LATENTS, names)
    kernel = kernel_of(tmp_path, inputs)
    batch = kernel.batch()
    assert batch is not None
    assert batch.latents is not None
    random = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn((2, n, h, batch.latents.width), generator=random) for n, h in ((1, 4), (5, 1), (5, 1)))
    before = [a.clone() for a in (q, k, v)]
    output, logarithms = kernel.forms()[0].around(names["run"], "run")(q, k, v)  # type: ignore[arg-type]
    assert all(map(torch.equal, before, (q, k, v)))
    assert output.shape == q.shape
    assert logarithms.shape == (2, 4, 1)
    scores = torch.einsum("bnhd,bmgd->bhnm", q, k) / batch.latents.width**0.5
    torch.testing.assert_close(output, torch.einsum("bhnm,bmgd->bnhd", scores.softmax(-1), v))


@pytest.mark.parametrize(
    ("name", "sizes", "shapes"),
    [
        ("ragged", {"t": 20, "s": 40, "r": 6}, [(3, 4, HEADS, WIDTH), *[(3, 8, KV_HEADS, WIDTH)] * 2]),
        ("paged", {"t": 4, "r": 5, "i": 8, "s": 99}, [(2, 1, HEADS, WIDTH), *[(2, 8, KV_HEADS, WIDTH)] * 2]),
        ("table", {"t": 3, "w": 5, "s": 99}, [(1, 1, HEADS, WIDTH), *[(1, 20, KV_HEADS, WIDTH)] * 2]),
        ("latents", {"t": 4, "r": 5, "i": 8, "s": 99}, [(2, 1, HEADS, 8), *[(2, 8, 1, 8)] * 2]),
    ],
)
def test_workloads_of_requests_have_as_many_of_average_length(
    name: str, sizes: dict[str, int], shapes: list[tuple[int, ...]], tmp_path: Path
) -> None:
    text, inputs, _ = KERNELS[name]
    kernel = read_definition(written(tmp_path, definition(text, inputs)))
    batch = kernel.batch()
    assert batch is not None
    assert batch.shapes(kernel.inputs, kernel.sizes(sizes, "here")) == shapes


@pytest.mark.torch
@pytest.mark.deep
def test_a_kernel_that_is_wrong_at_the_workload_alone_fails(tmp_path: Path) -> None:
    text, inputs, _ = KERNELS["paged"]
    reference, kernel = written(tmp_path, definition(text, inputs)), tmp_path / "kernel.py"
    line = {"axes": {"t": 9, "r": 10, "i": 18, "s": 40}}
    (tmp_path / "workload.jsonl").write_text(json.dumps(line))
    kernel.write_text(ONE + text)
    right = judge(str(kernel), reference=reference, examples=3)
    assert right.passed, right
    assert any("1 were tried" in words and "long as the workload's" in words for words in right.notes), right.notes
    kernel.write_text(ONE + text.replace("parts = []", "parts = []\n    sm_scale *= 1 + (len(q) == 9)"))
    assert judge(str(kernel), reference=reference, examples=3).status is reports.Status.FAIL


def test_arrays_of_one_batch_are_no_requests(tmp_path: Path) -> None:
    assert kernel_of(tmp_path, {"q": "tsc", "k": "twc", "v": "twc"}).batch() is None
    ragged = {"q": "tH", "k": "sH", "v": "sH", "cu_seqlens_q": "r", "cu_seqlens_k": "r"}
    found = kernel_of(tmp_path, ragged).batch()
    assert found is not None
    assert [name for name, _ in found.roles] == [*ragged]
    assert [role for _, role in found.roles[:3]] == ["q", "k", "v"]
    of_rows, of_keys = (role for _, role in found.roles[3:])
    swapped = {name: axes for name, axes in ragged.items() if "cu" not in name}
    turned = kernel_of(tmp_path, swapped | {"kv_indptr": "r", "qo_indptr": "r"}).batch()
    assert turned is not None
    assert dict(turned.roles) == {"q": "q", "k": "k", "v": "v", "kv_indptr": of_keys, "qo_indptr": of_rows}
    assert not found.decodes


TEN_AND_THREE = {"a": {"type": "const", "value": 10}, "b": {"type": "const", "value": 3}}


@pytest.mark.parametrize(
    ("text", "size"),
    [("a // b", 3), ("(a + 2) * -b + 40", 4), ("2 ** 3 % 5", 3), ("a / 5", 2), ("a * unknown", None)],
)
def test_an_axis_is_computed(text: str, size: int | None, tmp_path: Path) -> None:
    axes = AXES | TEN_AND_THREE | {"x": {"type": "expr", "expression": text}}
    kernel = kernel_of(tmp_path, {"q": "tH"}, axes=axes)
    assert kernel.constants.get("x") == size
    assert kernel.computed == ({"x": text} if size is None else {})


@pytest.mark.parametrize("text", ["a / b", "a // 0", "-a", "a **  99", "f(a)", "a.b", "1.5 * a", "a <", "[a]", "a @ b"])
def test_an_expression_of_another_form_is_refused(text: str, tmp_path: Path) -> None:
    axes = AXES | TEN_AND_THREE | {"x": {"type": "expr", "expression": text}}
    with pytest.raises(InputError, match="the axis x is"):
        kernel_of(tmp_path, {"q": "tH"}, axes=axes)


def test_workloads_say_scales_and_sizes_of_computed_axes(tmp_path: Path) -> None:
    axes = AXES | {"twice": {"type": "expr", "expression": "2 * s"}}
    inputs = {"q": "tH", "k": "sG", "v": "sG", "sm_scale": ""}
    content = definition("", inputs, axes=axes, custom_inputs_entrypoint="draw")
    content["inputs"] |= {"more": {"shape": ["twice"], "dtype": "float32"}}  # type: ignore[operator]
    kernel = read_definition(written(tmp_path, content))
    assert (kernel.constants["d"], kernel.computed, kernel.drawn_by) == (WIDTH, {"twice": "2 * s"}, "draw")
    lines = [{"axes": {"t": 2, "s": n}, "inputs": {"sm_scale": {"type": "scalar", "value": 0.5}}} for n in (3, 4)]
    path = tmp_path / "workload.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    workloads = read_workloads(path, kernel)
    assert [sizes["twice"] for sizes in workloads.sizes] == [6, 8]
    assert kernel.plausible(workloads.numbers) == ()  # no attention has an array "more"
    del content["inputs"]["more"]  # type: ignore[attr-defined]
    kernel = read_definition(written(tmp_path, content))
    assert kernel.plausible(workloads.numbers)[0] == Attention(heads=HEADS, kv_heads=KV_HEADS, lse=True, scale=0.5)
    usual = kernel.plausible({"sm_scale": 0.35355})
    assert usual[0].scale == Attention().scale  # 1/√8, as workloads round it


@pytest.mark.torch
@pytest.mark.parametrize("left_out", ["first", "last"])
def test_an_end_of_a_call_that_is_left_out_shows(left_out: str, tmp_path: Path) -> None:
    """Outputs of neighbours are not judged, so that no side has one in each call."""
    import torch

    def run(q, k, v, qo_indptr, kv_indptr, sm_scale):  # type: ignore[no-untyped-def]
        output = torch.zeros_like(q)
        count = len(qo_indptr) - 1
        for r in range(count):
            if r != (0 if left_out == "first" else count - 1):
                output[qo_indptr[r] : qo_indptr[r + 1]] = 1
        return output

    inputs = dict.fromkeys("qkv", "tH") | {"qo_indptr": "r", "kv_indptr": "r", "sm_scale": ""}
    form = kernel_of(tmp_path, inputs).forms()[0]
    outputs = [form.around(run, "run")(*(torch.ones(2, n, 1, 4) for _ in "qkv")) for n in (1, 2, 3)]
    assert sorted(bool((output == 1).all()) for output in outputs) == [False, True, True]


#: Ragged attention with a mask; each entry has the axes, the mask of request i, and a wrong one that it must not pass.
MASKED = """
def run(q, k, v, mask, qo_indptr, kv_indptr, sm_scale):
    parts, place = [], 0
    for i, (a, b, c, d) in enumerate(zip(qo_indptr[:-1], qo_indptr[1:], kv_indptr[:-1], kv_indptr[1:])):
        n, m = int(b - a), int(d - c)
        allowed = {mask}
        place += n * m
        x, y = (part[c:d].float().repeat_interleave(q.shape[1] // k.shape[1], 1) for part in (k, v))
        s = torch.einsum("qhd,khd->hqk", q[a:b].float(), x) * sm_scale
        {apply}
        parts.append((torch.einsum("hqk,khd->qhd", torch.softmax(s, -1), y), torch.logsumexp(s, -1).T / math.log(2)))
    return torch.cat([p[0] for p in parts]).to(q.dtype), torch.cat([p[1] for p in parts])
"""
_HIDE = "s = s.masked_fill(~allowed, -math.inf)"
MASKS = {
    "joint": ("ts", "mask[a:b, c:d]", ("mask[:n, :m]", "mask[a:b, c:d].roll(1, 1)")),
    "flat": (
        "i",
        "mask[place : place + n * m].view(n, m)",
        ("mask[: n * m].view(n, m)", "mask[place : place + n * m].view(m, n).T"),
    ),
    "rows": ("tw", "mask[a:b, :m]", ("mask[:n, :m]", "mask[a:b, :m].flip(0)")),
    "blocks": ("ruw", "mask[i, :n, :m]", ("mask[0, :n, :m]", "mask[i, :1, :m]")),
    "keys": ("s", "mask[c:d]", ("mask[:m]", "torch.ones(m, dtype=torch.bool)")),
}


def masked_definition(axes: str, mask: str, dtype: str = "bool", apply: str = _HIDE) -> dict[str, object]:
    text = MASKED.replace("{mask}", mask).replace("{apply}", apply)
    inputs = {"q": "tH", "k": "sG", "v": "sG", "mask": axes, "qo_indptr": "r", "kv_indptr": "r", "sm_scale": ""}
    content = definition(text, inputs, axes=AXES | {"u": {"type": "var"}})
    content["inputs"]["mask"]["dtype"] = dtype  # type: ignore[index]
    return content


@pytest.mark.torch
@pytest.mark.deep
@pytest.mark.long
@pytest.mark.parametrize("form", MASKS)
def test_a_mask_beside_requests_is_that_of_each(form: str, tmp_path: Path) -> None:
    axes, good, mistakes = MASKS[form]
    content, kernel = masked_definition(axes, good), tmp_path / "kernel.py"
    reference = written(tmp_path, content)
    kernel.write_text(str(content["reference"]))
    right = judge(str(kernel), reference=reference, examples=3)
    assert right.passed, right
    assert ("padding=True" if form == "keys" else "mask='boolean'") in right.definition
    for bad in mistakes:
        kernel.write_text(str(content["reference"]).replace(good, bad))
        wrong = judge(str(kernel), reference=reference, examples=3)
        assert wrong.status is reports.Status.FAIL, (bad, wrong)


@pytest.mark.torch
@pytest.mark.deep
@pytest.mark.long
def test_numbers_may_be_added_to_the_scores_of_requests(tmp_path: Path) -> None:
    good = MASKS["flat"][1]
    content = masked_definition("i", good, "float32", "s = s + allowed")
    reference, kernel = written(tmp_path, content), tmp_path / "kernel.py"
    (tmp_path / "workload.jsonl").write_text(json.dumps({"axes": {"t": 9, "s": 20, "r": 4, "i": 60}}))
    for good, bad in (("", ""), ("s + allowed", "s + 1.01 * allowed"), ("s + allowed", "s - allowed")):
        kernel.write_text(str(content["reference"]).replace(good, bad))
        judgement = judge(str(kernel), reference=reference, examples=3)
        assert judgement.passed if not good else judgement.status is reports.Status.FAIL, judgement
        if not good:
            assert any("1 were tried" in words for words in judgement.notes), judgement.notes


def test_workloads_of_requests_have_a_mask_for_all(tmp_path: Path) -> None:
    sizes = {"t": 20, "s": 40, "r": 6, "w": 9, "u": 5, "i": 170}
    for form, shape in {"joint": (4, 8), "keys": (8,)}.items():
        kernel = read_definition(written(tmp_path, masked_definition(*MASKS[form][:2])))
        batch = kernel.batch()
        assert batch is not None
        assert batch.shapes(kernel.inputs, kernel.sizes(sizes, "here"))[-1] == shape
