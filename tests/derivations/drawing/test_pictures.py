"""Pictures: their numbers, words, colours and bytes."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import hypot
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from symattn import InputError, bound, derive, draw, drawing, walk
from tests.refusals import refuses
from tests.shown.standard import contrast

_SVG = "{http://www.w3.org/2000/svg}"
CASES: tuple[tuple[str, dict[str, object]], ...] = (
    ("scaling", {"dk": 64}),
    ("saturation", {}),
    ("weights", {}),
    ("weights", {"source": "eight-step"}),
    ("weights", {"source": "documents", "head": 2}),
    ("geometry", {}),
    ("geometry", {"source": "eight-step"}),
    ("geometry", {"source": "ground-up", "query": 2}),
    ("shapes", {}),
    ("shapes", {"source": "latent"}),
    ("shapes", {"heads": 8, "kv_heads": 2, "position": "rotary", "causal": True}),
    ("rope", {}),
    ("rope", {"dk": 16, "tokens": 32}),
    ("tiles", {}),
    ("tiles", {"source": "cross", "query": 2, "tile": 2}),
    ("error", {}),
    ("masks", {}),
    ("masks", {"causal": True, "tokens": 5, "keys": 7}),
    ("masks", {"causal": True, "window": [2, 0], "heads": 4, "kv_heads": 2}),
)


@pytest.fixture(scope="module", params=range(len(CASES)), ids=lambda i: f"{CASES[i][0]}-{i}")
def picture(request: pytest.FixtureRequest) -> Any:
    topic, parameters = CASES[request.param]
    return draw(topic, **parameters)


def colours(picture: Any) -> list[dict[str, str]]:
    """The colours of a file by role: on light paper, and on dark paper."""
    found: list[dict[str, str]] = [{}, {}]
    light, dark = picture.svg().split("<style>")[1].split("</style>")[0].split("@media")
    for place, style in enumerate((light, dark)):
        found[place] |= dict(re.findall(r"\.(\w+){fill:(#\w+)}", style))
    return found


def walked(name: str = "cross") -> Mapping[str, np.ndarray]:
    """The arrays of a walk, as decimals."""
    return {step["name"]: np.array(step["decimal"]) for step in json.loads(walk(name).json())["steps"]}


def digits(x: float) -> str:
    """A number with three digits, as pictures have them."""
    return f"{x:#.3g}" if x % 1 else f"{x:.0f}"


def number(words: str) -> float:
    """The number that a picture writes with a power of ten, or without one."""
    return float(words.replace("·10^", "e").replace("−", "-"))


def mixed(below: str, above: str, share: float) -> str:
    """The colour of ``above`` that covers a ``share`` of what is below."""
    parts = (round(b + (a - b) * share) for a, b in zip(_parts(above), _parts(below), strict=True))
    return "#" + "".join(f"{x:02X}" for x in parts)


def _parts(colour: str) -> list[int]:
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


def words(picture: Any) -> list[str]:
    """The words of every label, from the SVG."""
    root = ElementTree.fromstring(picture.svg())
    return ["".join(node.itertext()) for node in root.iter(f"{_SVG}text")]


def notes(picture: Any) -> list[str]:
    """What marks and cells say of their numbers."""
    root = ElementTree.fromstring(picture.svg())
    return [node.text or "" for mark in ("circle", "rect") for node in root.iterfind(f".//{_SVG}{mark}/{_SVG}title")]


def test_every_picture_is_tested() -> None:
    assert {topic for topic, _ in CASES} == set(drawing.names())


def test_xml_words_and_bytes(picture: Any) -> None:
    for fragment in (False, True):
        svg = picture.svg(fragment)
        assert svg == picture.svg(fragment)
        root = ElementTree.fromstring(svg)
        title, description = root.find(f"{_SVG}title"), root.find(f"{_SVG}desc")
        assert title is not None
        assert description is not None
        assert title.text == picture.title
        assert re.search(r"\d", description.text or ""), "the description says no number"
        assert root.attrib["aria-labelledby"] == f"{title.attrib['id']} {description.attrib['id']}"
        assert root.attrib["viewBox"].startswith("0 0 480 ")
        assert ("<style>" in svg) is not fragment


def overlap(a: Sequence[float], b: Sequence[float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def misplaced(labels: Sequence[Any], height: float) -> list[str]:
    """Labels that leave the sheet, which is 480 wide, or lie on one another."""
    boxes = [(label.words, label.box) for label in labels]
    out = [w for w, b in boxes if b[0] < 0 or b[1] < 0 or b[2] > 480 or b[3] > height]
    return out + [f"{a} on {b}" for i, (a, x) in enumerate(boxes) for b, y in boxes[:i] if overlap(x, y)]


def test_labels_have_room(picture: Any) -> None:
    assert misplaced(picture.scene.labels, picture.scene.height) == []


def label(x: float, y: float, words: str) -> Any:
    """A label of a picture, moved and with other words."""
    usual = next(each for each in draw("masks", causal=True, n=3).scene.labels if not each.upwards)
    return replace(usual, x=x, y=y, words=words, size=15, anchor="start")


def test_labels_without_room_are_found() -> None:
    labels = [label(10, 50, "one {q_1}"), label(40, 52, "two"), label(470, 20, "far")]
    assert misplaced(labels, 100) == ["far", "two on one {q_1}"]


def test_the_least_size_of_text(picture: Any) -> None:
    assert min(label.size for label in picture.scene.labels) >= 13


def test_contrast(picture: Any) -> None:
    shades = [float(share) for share in re.findall(r'class="weight" fill-opacity="([\d.]+)"', picture.svg())]
    for of in colours(picture):
        for role, colour in of.items():
            if role not in ("paper", "rule", "tint"):
                assert contrast(colour, of["paper"]) >= 4.5, role
        for share in shades:
            assert contrast(of["ink"], mixed(of["tint"], of["weight"], share)) >= 4.5
        assert contrast(of["ink"], mixed(of["tint"], of["weight"], 0.9)) < 4.5


def test_the_largest_weights_are_shaded_most() -> None:
    shades = re.findall(r'class="weight" fill-opacity="([\d.]+)"', draw("weights").svg())
    weights = walked()["weights"].ravel()
    shares = [float(shade) / weight for shade, weight in zip(shades, weights, strict=True)]
    assert shares == pytest.approx([shares[1]] * len(shares), abs=0.05)
    assert 0.3 < shares[1] < 0.5


@pytest.mark.deep
def test_variances_are_those_of_the_derivation() -> None:
    """With as many draws as the derivation has, a point is its number."""
    document = derive("scaling", d_k=64, all=True)
    drawn = draw("scaling", d_k=64, draws=20_000, seed=0)
    found = next(note for note in notes(drawn) if note.startswith("d_k = 64: "))
    assert f"≈ {found.split()[3]} " in document.text().replace("\n", " ") + " "


@pytest.mark.deep
def test_slopes_are_those_of_the_derivation() -> None:
    row = next(line for line in derive("scaling", d_k=256, all=True).text().splitlines() if re.match(r"▸ *256 ", line))
    told = words(draw("saturation", d_k=256))
    for number in row.split()[3:7]:
        assert re.sub(r"e-0?(\d)", r"·10−\1", number) in told


def test_larger_weights() -> None:
    """The mean of a scaled row is the same at every d_k, and without scaling at d_k = 1."""
    found = [n.split(": ")[1] for n in notes(draw("saturation", d_k=16))]
    assert found.count("0.725") == 4


def test_weights_are_those_of_the_walk() -> None:
    told = words(draw("weights"))
    for entry in walked()["weights"].flat:
        assert digits(entry) in told
    assert told.count("1 + e + e4") == 3
    assert "1 + e + e3/2" in told
    assert told.count("1") == 4, "two sums, and two numerators"


def test_angles_and_scores_are_those_of_the_word_vectors() -> None:
    """Training makes the angle of king and queen smaller, and their dot product too."""
    told = words(draw("geometry"))
    assert {"kqueen 25.7°", "kcricketer 59.0°", "kqueen 4.90°", "kcricketer 64.4°"} <= set(told)
    assert {"qking·kqueen = 157/100", "qking·kqueen = 123/100", "qking·kking = 6/5", "qking = kking"} <= set(told)
    assert "one plane. Sums are drawn in the plane of two values; vqueen lies" in told


def test_the_sum_ends_at_the_output() -> None:
    """The last arrow ends where the exact output is in the plane that is drawn."""
    arrays = walked()
    values, output = arrays["v"], arrays["output"][0]
    first = values[0] / np.linalg.norm(values[0])
    rests = values - np.outer(values @ first, first)
    farthest = rests[np.argmax(np.linalg.norm(rests, axis=-1))]
    plane = np.stack([first, farthest / np.linalg.norm(farthest)])
    drawn = draw("geometry", source="cross").scene
    arrow = next(item for item in drawn.items if hasattr(item, "points") and item.role == "output")
    scale = hypot(*(plane @ values[0])) / hypot(*offset(drawn, "v", 0))
    found = [x * scale for x in offset(drawn, "output", 0)]
    assert arrow.head
    assert found == pytest.approx(plane @ output, rel=1e-9)


def offset(scene: Any, role: str, number: int) -> tuple[float, float]:
    """From the start to the end of a line of a role, upwards."""
    line = [item for item in scene.items if hasattr(item, "points") and item.role == role][number]
    (x, y), (x1, y1) = line.points
    return x1 - x, y - y1


def test_shapes_are_those_of_the_arrays() -> None:
    arrays = walked()
    told = words(draw("shapes", source="cross"))
    for name in ("x", "y", "w_q", "q", "k", "v", "scores", "weights", "output"):
        assert " × ".join(map(str, arrays[name].shape)) in told, name
    assert {"n × dmodel", "dmodel × dk", "n × dk", "S/√dk"} <= set(words(draw("shapes")))


def test_shapes_leave_out_what_a_step_asks_the_length_of() -> None:
    """S/√d_k reads S alone, and Q is drawn where it is made and where scores are."""
    assert words(draw("shapes")).count("Q") == 2


@pytest.mark.deep
def test_tiles_are_those_of_the_derivation() -> None:
    row = next(line for line in derive("online-softmax").text().splitlines() if re.match(r"▸? *3 +2 +2 +3 ", line))
    told = " ".join(words(draw("tiles")))
    assert "m = 3, ℓ ≈ 1.50, o = (4 + 2e + e2)/(1 + e + e2) ≈ 1.51" in told
    assert "(4 + 2e + e²)/(1 + e + e²)" in row
    assert told.count("sums so far") == 1, "the maximum grows once"
    assert "sums so far × e−2" in told


def test_tiles_end_with_the_weights_and_outputs_of_the_walk() -> None:
    arrays = walked()
    for tile in (1, 2, 3):
        told = " ".join(words(draw("tiles", source="cross", query=2, tile=tile)))
        weights = ", ".join(map(digits, arrays["weights"][1]))
        assert f"{weights}: unrounded, they add up to 1" in told
        assert "(" + ", ".join(map(digits, arrays["output"][1])) + ")" in told


def test_equal_distances_have_equal_scores() -> None:
    told = words(draw("rope"))
    assert told.count("(Rmq)·(Rnk) = 2/5") == 2
    assert {"ω0 = 1", "ω1 = 0.100", "ω2 = 0.0100", "ω3 = 0.00100"} <= set(told)
    assert "ω1 = 0.0464" in words(draw("rope", dk=6))


def test_errors_are_within_the_bounds_of_bound() -> None:
    told = [note.split(": ") for note in notes(draw("error")) if ", n = 64, d_k = 64: " in note]
    by_format: dict[str, list[float]] = {}
    for place, words in told:
        by_format.setdefault(place.partition(",")[0], []).append(number(words))
    assert {"float32", "float16", "bfloat16"} <= {*by_format}
    for dtype, (found, allowed) in by_format.items():
        assert allowed == pytest.approx(bound(n=64, d_k=64, dtype=dtype).value, rel=0.05)
        assert allowed / 100_000 < found < allowed


def test_masks_count_their_pairs() -> None:
    drawn = draw("masks")
    assert [w for w in words(drawn) if " of 64" in w] == ["36 of 64", "21 of 64", "32 of 64", "17 of 64"]
    assert sum(" may attend" in note for note in notes(drawn)) == 36 + 21 + 32 + 17


def test_files(tmp_path: Path) -> None:
    picture = draw("masks", causal=True, n=3)
    path = picture.save(tmp_path / "a.svg")
    assert path.read_text(encoding="utf-8") == picture.svg()
    picture.save(path)  # symattn's own may be replaced
    path.write_text("<svg/>")
    refuses(picture.save, path, says="does not say that symattn wrote it")
    picture.save(path, force=True)
    refuses(picture.save, tmp_path / "a.gif", says=".svg, .pdf or .png")


@pytest.mark.deep
@pytest.mark.parametrize("form", ["png", "pdf"])
def test_other_forms(form: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = draw("weights")
    assert picture.bytes(form) == picture.bytes(form)
    path = picture.save(tmp_path / f"a.{form}")
    picture.save(path)
    path.write_bytes(path.read_bytes().replace(b"Made with symattn", b"Made with another"))
    refuses(picture.save, path, says="does not say that symattn wrote it")


def test_measured_widths_are_never_too_small() -> None:
    """Of a wide serif every letter is at most as wide as it is taken for."""
    pytest.importorskip("matplotlib")
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(family="DejaVu Serif", size=100)
    one = label(0, 0, "")
    for letter in map(chr, [*range(32, 127), *map(ord, "·−√≤≥→×σμπθω²³°±≈′⁻⁴₁")]):
        wide = text_to_path.get_text_width_height_descent(letter, font, False)[0] / 100
        assert wide <= replace(one, words=letter, size=1).width + 0.02, letter


@pytest.mark.parametrize(
    ("topic", "parameters", "said"),
    [
        ("weight", {}, "did you mean weights"),
        ("scaling", {"heads": 2}, "no parameter heads"),
        ("scaling", {"draws": 3}, "draws must be an integer from 10 to 20000, got 3"),
        ("scaling", {"dk": 0}, "d_k must be an integer from 1 to 65536, got 0"),
        ("weights", {"source": "nowhere"}, "neither an example nor a file"),
        ("weights", {"head": 2}, "head must be an integer from 1 to 1, got 2"),
        ("geometry", {"query": 4}, "query is 4"),
        ("geometry", {"source": "documents"}, "one head"),
        ("geometry", {"source": "additive"}, "not a dot product"),
        ("rope", {"dk": 7}, "even number"),
        ("rope", {"tokens": 1}, "n must be an integer from 2 to 64, got 1"),
        ("tiles", {"tile": 0}, "tile must be an integer of at least 1"),
        ("tiles", {"source": "sparsemax"}, "softmax"),
        ("tiles", {"causal": True}, "name one"),
        ("masks", {"tokens": 200}, "n must be an integer from 1 to 64, got 200"),
        ("masks", {"mask": "boolean"}, "mask"),
    ],
)
def test_bad_wishes(topic: str, parameters: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        draw(topic, **parameters)
