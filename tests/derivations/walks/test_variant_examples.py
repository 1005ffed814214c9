"""The examples of variants come to what loops over fractions and floats give."""

import math
from fractions import Fraction
from functools import cache
from typing import Any

import pytest

from symattn.arrays.field.quotient import Quotient
from symattn.derivations import examples
from symattn.derivations.walks import walk
from symattn.document.evidence import Grade
from tests.derivations.walks.by_hand import close, dot, fractions, mixed, rotated, softmax, sparsest, t5_bucket, times


@cache
def steps(name: str, latent: str | None = None) -> dict[str, dict[str, Any]]:
    """The steps of a walk's record by name."""
    fields = {"latent": latent} if latent else {}
    return {entry["name"]: entry for entry in walk(name, **fields).record["steps"]}


@cache
def given(name: str) -> dict[str, Any]:
    return {key: fractions(rows) for key, rows in examples._data(name)["inputs"].items()}


def exact(found: Any) -> Any:
    """Nested strings as fractions, −∞ as None."""
    if isinstance(found, (list, tuple)):
        return [exact(x) for x in found]
    return None if found == "-oo" else Quotient.of(found).rational()


def test_decoder_step_by_loops() -> None:
    data, found = given("decoder-step"), steps("decoder-step")
    triples = [(3, 4, 5), (4, 3, 5)]
    last = len(data["k"][0]) - 1
    q = [[rotated(row, triples, last) for row in head] for head in data["q"]]
    k = [[rotated(row, triples, j) for j, row in enumerate(head)] for head in data["k"]]
    assert exact(found["q_rotated"]["exact"]) == q
    assert exact(found["k_rotated"]["exact"]) == k
    scores = [[[dot(row, key) for key in k[h // 2]] for row in q[h]] for h in range(4)]
    assert exact(found["scores"]["exact"]) == scores
    capped = [[4 * math.tanh(float(s) / 2 / 4) for s in head[0]] for head in scores]
    assert close([head[0] for head in found["capped"]["decimal"]], capped)
    seen = [[None if j < last - 3 else s for j, s in enumerate(row)] for row in capped]
    weights = [softmax(row, float(sink)) for row, sink in zip(seen, data["sink"], strict=True)]
    assert close([head[0] for head in found["weights"]["decimal"]], weights)
    assert all(sum(row) < 1 for row in weights)
    out = [mixed(row, data["v"][h // 2]) for h, row in enumerate(weights)]
    assert close([head[0] for head in found["output"]["decimal"]], out)
    assert found["capped"]["grade"] is Grade.CHECKED
    assert found["weights"]["grade"] is found["output"]["grade"] is Grade.ENCLOSED


def latent_scores(data: dict[str, Any]) -> list[list[Fraction]]:
    """Scores of both heads, times 1/2: d_n = 1 column without positions, 2 with."""
    q, c, k_r = times(data["x"], data["w_q"])[0], times(data["y"], data["w_dkv"]), times(data["y"], data["w_kr"])
    k_n, last = times(c, data["w_uk"]), len(c) - 1
    triples = [(3, 4, 5)]
    rows = []
    for h in range(2):
        own, positional = q[3 * h : 3 * h + 1], rotated(q[3 * h + 1 : 3 * h + 3], triples, last)
        rows.append(
            [(dot(own, k_n[j][h : h + 1]) + dot(positional, rotated(k_r[j], triples, j))) / 2 for j in range(6)]
        )
    return rows


@pytest.mark.parametrize("way", [None, "absorbed"])
def test_latents_by_loops(way: str | None) -> None:
    data, found = given("latent"), steps("latent", way)
    scores = latent_scores(data)
    assert [head[0] for head in exact(found["scaled"]["exact"])] == scores
    v = times(times(data["y"], data["w_dkv"]), data["w_uv"])
    out = [x for h in range(2) for x in mixed(softmax(scores[h]), [row[4 * h : 4 * h + 4] for row in v])]
    assert close(found["output"]["decimal"][0], out)
    assert ("v" in found) == (way is None)
    assert found["output"]["grade"] is Grade.CHECKED


def test_both_ways_of_latents_are_equal_to_the_last_digit() -> None:
    one, other = steps("latent")["output"]["exact"], steps("latent", "absorbed")["output"]["exact"]
    assert [Quotient.of(x) for x in one[0]] == [Quotient.of(x) for x in other[0]]


def test_buckets_by_loops() -> None:
    data, found = given("t5"), steps("t5")
    for h in range(2):
        for i in range(3):
            buckets = [t5_bucket(j - i - 2, 6, 4) for j in range(5)]
            scores = [
                dot(data["q"][h][i], key) + data["b_rel"][b][h] for key, b in zip(data["k"][h], buckets, strict=True)
            ]
            assert exact(found["positioned"]["exact"])[h][i] == scores
            assert close(found["output"]["decimal"][h][i], mixed(softmax(scores), data["v"][h]))
    assert {t5_bucket(j - i - 2, 6, 4) for i in range(3) for j in range(5)} == {0, 1, 2, 4, 5}


def test_additive_scores_by_loops() -> None:
    data, found = given("additive"), steps("additive")
    q = times(data["q"], data["w_s"])[0]
    hidden = [[math.tanh(float(a + b)) for a, b in zip(q, row, strict=True)] for row in times(data["k"], data["u_s"])]
    scores = [math.fsum(float(v) * h for v, h in zip(data["v_s"], row, strict=True)) for row in hidden]
    assert close(found["scores"]["decimal"][0], scores)
    assert close(found["output"]["decimal"][0], mixed(softmax(scores), data["v"]))
    assert found["scores"]["grade"] is Grade.CHECKED
    assert found["weights"]["grade"] is Grade.ENCLOSED


def test_slopes_by_loops() -> None:
    data, found = given("alibi"), steps("alibi")
    slopes = [Fraction(1, 16), Fraction(1, 256), Fraction(1, 4)]
    assert exact(found["slopes"]["exact"]) == slopes
    for h in range(3):
        for i in range(2):
            place = i + 3
            scores = [dot(data["q"][h][i], key) / 2 - slopes[h] * (place - j) for j, key in enumerate(data["k"][h])]
            seen = [s if j <= place else None for j, s in enumerate(scores)]
            assert exact(found["masked"]["exact"])[h][i] == seen
            assert close(found["output"]["decimal"][h][i], mixed(softmax(seen), data["v"][h]))


def test_relative_positions_by_loops() -> None:
    data, found = given("relative"), steps("relative")
    for i in range(2):
        rows = [max(-1, min(1, j - i - 3)) + 1 for j in range(5)]
        scores = [dot(data["q"][i], [a + b for a, b in zip(key, data["a_k"][r], strict=True)]) / 2
                  for key, r in zip(data["k"], rows, strict=True)]  # fmt: skip
        assert exact(found["scaled"]["exact"])[i] == scores
        values = [[a + b for a, b in zip(v, data["a_v"][r], strict=True)] for v, r in zip(data["v"], rows, strict=True)]
        assert close(found["output"]["decimal"][i], mixed(softmax(scores), values))


def test_sparse_weights_by_trying_every_set_of_keys() -> None:
    data, found = given("sparsemax"), steps("sparsemax")
    for i, query in enumerate(data["q"]):
        weights = sparsest([dot(query, key) / 2 for key in data["k"]])
        assert exact(found["weights"]["exact"])[i] == weights
        assert exact(found["output"]["exact"])[i] == times([weights], data["v"])[0]
    assert any(0 in row for row in exact(found["weights"]["exact"]))


def test_documents_by_loops() -> None:
    data, found = given("documents"), steps("documents")
    q, k, v = (times(data["x"], data[f"w_{role}"]) for role in "qkv")
    labels = data["doc"]
    for i in range(5):
        out = []
        for h in range(2):
            one, two = slice(3 * h, 3 * h + 3), slice(4 * h, 4 * h + 4)
            unit = [math.sqrt(dot(row[one], row[one]) / 3) for row in k]
            length = math.sqrt(dot(q[i][one], q[i][one]) / 3)
            scores = [float(dot(q[i][one], k[j][one])) / length / unit[j] if j <= i and labels[j] == labels[i] else None
                      for j in range(5)]  # fmt: skip
            out += mixed(softmax(scores), [row[two] for row in v])
        assert close(found["output"]["decimal"][i], out)
    assert found["output"]["grade"] is Grade.CHECKED


@pytest.mark.parametrize("name", examples.NAMES[examples.NAMES.index("decoder-step") :])
def test_no_two_sizes_of_an_example_are_equal(name: str) -> None:
    record = walk(name).record
    main = [
        n for size, n in record["sizes"].items() if size in ("n", "n_q", "n_k", "d_model", "d_k", "d_v", "h", "h_kv")
    ]
    assert len(set(main)) == len(main), record["sizes"]
