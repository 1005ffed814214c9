"""The page to explore computes in JavaScript: every number of it is held against symattn's own."""

import json
import random
import re
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import symattn
from symattn import Attention, Document, Grade, drawing, kinds
from symattn.derivations import examples
from symattn.derivations.walks.walk_data import Walk
from tests.document.render.test_latex_compiles import together
from tests.shown import node
from tests.shown.documents import AROUND, Formula, decided, volume
from tests.shown.documents import of as formulas_of
from tests.shown.node import FOLDER

pytestmark = pytest.mark.node

NAMES = ("q", "k", "v", "scores", "scaled", "weights", "output")
FORMATS = {"float64": np.float64, "float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def drawn(seed: int) -> dict[str, Any]:
    """A state of the page: small sizes, whole numbers and fractions."""
    rng = random.Random(seed)
    heads = rng.choice((1, 1, 2))
    n, d_model = rng.randint(1, 6), rng.randint(1, 6)
    d_k, d_v = (heads * rng.randint(1, 6 // heads) for _ in range(2))
    entry = rng.choice((lambda: str(rng.randint(-3, 3)), lambda: f"{rng.randint(-5, 5)}/{rng.randint(1, 4)}"))
    shapes = {"x": (n, d_model), "w_q": (d_model, d_k), "w_k": (d_model, d_k), "w_v": (d_model, d_v)}
    arrays = {name: [[entry() for _ in range(b)] for _ in range(a)] for name, (a, b) in shapes.items()}
    scale = rng.choice(("none", "root"))
    temperature = rng.choice(("1", "1/2", "3")) if scale == "none" else "1"
    chosen = {"scale": scale, "causal": rng.random() < 0.4, "temperature": temperature, "heads": heads}
    return arrays | chosen | {"format": rng.choice(list(FORMATS))}


def walked(state: dict[str, Any]) -> dict[str, Any]:
    """symattn's own arrays, exact, with an axis of heads."""
    scale = None if state["scale"] == "root" else 1 / Fraction(state["temperature"])
    spec = Attention(heads=state["heads"], scale=scale, causal=state["causal"])
    given = {name: [[kinds.Quotient.of(x) for x in row] for row in state[name]] for name in ("x", "w_q", "w_k", "w_v")}
    found = Walk(replace(examples.load("eight-step"), attention=spec, inputs=given), "float64").arrays
    found["scaled"] = found.get("masked", found["scaled"])
    for name in ("q", "k", "v"):
        found[name] = np.concatenate(list(found[name]), axis=-1) if state["heads"] > 1 else found[name]
    for name in ("scores", "scaled", "weights"):
        found[name] = found[name] if state["heads"] > 1 else found[name][None]
    return found


def unequal(shown: dict[str, Any], state: dict[str, Any]) -> list[str]:
    """The entries of which the page has another exact number, or other digits, than a walk."""
    wrong, found = [], walked(state)
    for name in NAMES:
        for index in np.ndindex(found[name].shape):
            x, entry = found[name][index], shown[name]
            for i in index:
                entry = entry[i]
            text, digits = entry
            same = text == "-oo" if isinstance(x, kinds.Forbidden) else text == str(x)
            wrong += [] if same else [f"{name}{index}: {text}, not {x}"]
            wrong += [] if not digits or digits == x.decimal(9) else [f"{name}{index}: {digits}, not {x.decimal(9)}"]
    return wrong


def test_every_exact_number_and_decimal_is_that_of_a_walk() -> None:
    compare(range(12))


@pytest.mark.exhaustive
def test_five_hundred_states() -> None:
    compare(range(12, 512))


def compare(seeds: range) -> None:
    states = [drawn(seed) for seed in seeds]
    found = node.run("exact.mjs", lines=states)
    assert len(found) == len(states)
    assert [wrong for one, state in zip(found, states, strict=True) for wrong in unequal(one["exact"], state)] == []


LARGE = ("0", "1/3", "999", "9999", "1000000", "-1000000", "999999999999", "-0.0000000001", "1/999983")


def edited(entry: str) -> dict[str, Any]:
    """The first page with another number in its first cell."""
    first = symattn.explore("eight-step").state
    arrays = {name: [row.split(",") for row in first[name].split(";")] for name in ("x", "w_q", "w_k", "w_v")}
    arrays["x"][0][0] = entry
    return arrays | {"scale": "none", "causal": False, "temperature": "1", "heads": 1, "format": "float32"}


def test_numbers_with_a_million_digits_are_never_written_out() -> None:
    states = [edited(entry) for entry in LARGE] + [edited("999") | {"scale": "root"}]
    found = node.run("exact.mjs", lines=states)
    assert [wrong for one, state in zip(found, states, strict=True) for wrong in unequal(one["exact"], state)] == []
    assert found[2]["exact"]["weights"][0][0][1][1] == "1.79196011e-432125"


def test_another_state_is_told_apart() -> None:
    (found,) = node.run("exact.mjs", lines=[drawn(0)])
    assert unequal(found["exact"], drawn(0)) == []
    assert unequal(found["exact"], drawn(0) | {"scale": "none", "temperature": "7"})


# -- floats ------------------------------------------------------------------------------------------------------------
def test_every_operation_is_rounded_to_nearest() -> None:
    states = [drawn(seed) for seed in range(100, 140)]
    for one, state in zip(node.run("exact.mjs", lines=states), states, strict=True):
        for name, array in rounded(state).items():
            shown = np.array(one["floats"][name], dtype=object)
            for index in np.ndindex(array.shape):
                value, digits = shown[index]
                assert Fraction(value) == array[index], (name, index, state["format"])
                assert FORMATS[state["format"]](float(digits)) == float(array[index])


def rounded(state: dict[str, Any]) -> dict[str, Any]:
    """Q, the weights and the output of the first head with every operation rounded, from fractions and balls."""
    to = rounding(state["format"])
    x, *ws = (np.array([[to(Fraction(e)) for e in row] for row in state[name]]) for name in ("x", "w_q", "w_k", "w_v"))
    q, k, v = (product(x, w, to) for w in ws)
    width = q.shape[1] // state["heads"]
    scores = product(q[:, :width], k[:, :width].T, to)
    root = to(kinds.Quotient.of(width).sqrt()) if state["scale"] == "root" else Fraction(1)
    rows = []
    for i, row in enumerate(scores):
        open_ = row[: i + 1] if state["causal"] else row
        scaled = [to(to(s / root) / to(Fraction(state["temperature"]))) for s in open_]
        powers = [to(kinds.Quotient.of(to(s - max(scaled))).exp()) for s in scaled]
        total = summed(powers, to)
        rows.append([to(p / total) for p in powers] + [Fraction(0)] * (len(row) - len(open_)))
    weights = np.array(rows)
    return {"q": q, "weights": weights[None], "output": product(weights, v[:, : v.shape[1] // state["heads"]], to)}


Rounding = Callable[[Any], Fraction]


def rounding(name: str) -> Rounding:
    """To the nearest number of a format, ties to even."""
    info = ml_dtypes.finfo(FORMATS[name])
    bits, lowest = int(info.nmant) + 1, Fraction(float(info.smallest_subnormal))

    def to(x: Any) -> Fraction:
        r = x if isinstance(x, Fraction) else x.rational()
        if r is None:  # far more bits than any format has
            ball = x.arb(400)
            man, exp = (int(part) for part in ball.mid().man_exp())
            r = man * Fraction(2) ** exp
        if not r:
            return Fraction(0)
        e = abs(r.numerator).bit_length() - r.denominator.bit_length()
        e -= abs(r) < Fraction(2) ** e
        unit = max(Fraction(2) ** (e - bits + 1), lowest)
        return round(r / unit) * unit

    return to


def summed(terms: Any, to: Rounding) -> Fraction:
    """The sum from the first term to the last."""
    first, *others = terms
    for term in others:
        first = to(first + term)
    return Fraction(first)


def product(a: Any, b: Any, to: Rounding) -> Any:
    """A product of matrices, every product and sum rounded."""
    return np.array([[summed([to(x * y) for x, y in zip(row, col, strict=True)], to) for col in b.T] for row in a])


# -- Every formula of every document is read by KaTeX, MathJax and pdflatex alike --------------------------------------
READERS = ("katex", "mathjax", "pdflatex")
# Markdown spells < and > in letters, since they open HTML there; KaTeX and MathJax know the words.
HEAD = "\\documentclass{article}\n\\usepackage{amsmath,amssymb}\n\\def\\lt{<}\\def\\gt{>}\n\\begin{document}\n"
RIGHT: Formula = (r"\tfrac{1}{2}", False)
WRONG: Formula = (r"\frac{1}{\nothing}", True)


@pytest.fixture(scope="module")
def found(documents: list[tuple[str, Document]]) -> Mapping[Formula, str]:
    return formulas_of(documents)


def refused(reader: str, wanted: Collection[Formula], folder: Path) -> list[str]:
    """Formulas that the reader refuses, each with what it says."""
    if reader == "pdflatex":
        shown = (rf"\[{tex}\]" if display else f"${tex}$\n" for tex, display in wanted)
        return errors(typeset(HEAD, (f"\\typeout{{AT {x}}}%\n{x_}" for x, x_ in enumerate(shown)), folder))
    lines = ({"tex": tex, "display": display} for tex, display in wanted)
    return [f"{x['tex']}: {x['error']}" for x in node.run("formulas.mjs", reader, lines=lines)]


def typeset(head: str, parts: Iterable[str], folder: Path) -> str:
    """The log of pdflatex, which goes on after an error."""
    assert shutil.which("pdflatex"), "pdflatex is missing"
    (folder / "it.tex").write_text("\n".join((head, *parts, "\\end{document}\n")), encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "it.tex"]
    subprocess.run(command, cwd=folder, capture_output=True, timeout=300, check=False)
    log = (folder / "it.log").read_text(encoding="utf-8", errors="replace")
    assert "Output written on" in log, log[-2000:]
    return log


def errors(log: str) -> list[str]:
    """Each error, after the name of the part that it is in, with the line that shows where."""
    parts = re.split(r"^AT (.+)$", log, flags=re.MULTILINE)
    said = re.compile(r"^! .*|^l\.\d+ .*", re.MULTILINE)
    return [
        f"{at}: {' '.join(told)}"
        for at, part in zip(parts[1::2], parts[2::2], strict=True)
        if (told := said.findall(part))
    ]


@pytest.mark.parametrize("reader", READERS)
def test_every_formula_is_read(reader: str, found: Mapping[Formula, str], tmp_path: Path) -> None:
    assert len(found) > 2000
    assert refused(reader, found, tmp_path) == []


@pytest.mark.parametrize("reader", READERS)
def test_a_wrong_formula_is_refused(reader: str, tmp_path: Path) -> None:
    told = refused(reader, [RIGHT, WRONG, RIGHT], tmp_path)
    assert len(told) == 1
    assert "nothing" in told[0] or "Undefined" in told[0]


def test_the_book_leaves_no_theorem_open() -> None:
    assert {one.finding.false_grade for one in decided()} == {Grade.REFUTED}
    assert not any(evidence.grade is Grade.UNDECIDED for evidence in volume().evidence())


def test_every_document_compiles_and_fits(documents: list[tuple[str, Document]], tmp_path: Path) -> None:
    assert "Overfull \\hbox" not in together(documents, tmp_path)


# -- Every page that symattn writes is valid HTML, by the checker that the W3C runs (vnu) ------------------------------
VNU = FOLDER / "node_modules" / "vnu-jar" / "build" / "dist" / "vnu.jar"
KINDS = {"derivation", "walk", "proof", "verification", "bound", "claim", "audit"}


def complaints(pages: Iterable[Path]) -> list[str]:
    """What vnu says of pages: errors and warnings."""
    assert shutil.which("java"), "Java is missing"
    assert VNU.is_file(), "vnu is missing: npm install --no-package-lock in tests/shown/node"
    command = ["java", "-jar", str(VNU), "--format", "json", "--exit-zero-always", *map(str, pages)]
    done = subprocess.run(command, capture_output=True, timeout=300, check=True)
    told = json.loads(done.stderr)["messages"]
    return [f"{Path(x['url']).name}: {x['message']}: {x.get('extract', '')}" for x in told]


def written(pages: dict[str, str], folder: Path) -> list[Path]:
    """The pages as files."""
    found = []
    for number, (name, page) in enumerate(pages.items()):
        found.append(folder / f"{number}-{re.sub(r'[^A-Za-z]+', '-', name)}.html")
        found[-1].write_text(page, encoding="utf-8")
    return found


def test_every_page_is_valid(documents: list[tuple[str, Document]], tmp_path: Path) -> None:
    pages = {name: document.html() for name, document in documents}
    assert {document.kind for _, document in documents} >= KINDS
    pages |= {name: symattn.explore(name).html() for name in ("eight-step", "scaling")}
    pages["fragments"] = AROUND.format("".join(d.html(fragment=True) for n, d in documents if n.startswith("derive r")))
    drawn = "".join(symattn.draw(name).svg(fragment=True) for name in drawing.names())
    pages["pictures"] = AROUND.format(drawn)
    assert complaints(written(pages, tmp_path)) == []


def test_a_fault_is_found(tmp_path: Path) -> None:
    faults = {
        "half a fraction": "<math><mfrac><mn>1</mn></mfrac></math>",
        "one name twice": "<p id='a'></p><p id='a'></p>",
        "not closed": "<table><tr><td></tr></p></table>",
        "no such element": "<svg><circles/></svg>",
    }
    told = complaints(written({name: AROUND.format(fault) for name, fault in faults.items()}, tmp_path))
    assert {one.partition(".html")[0] for one in told} == {path.stem for path in tmp_path.glob("*.html")}


def test_pages_that_scroll_sideways_are_found(tmp_path: Path) -> None:
    bodies = {
        "a": "<p style='width:1300px'>wide</p>", "b": "<p style='width:400px'>wide on a phone</p>",
        "c": "<article><h2 style='width:40px'>A heading of several words</h2></article>", "d": "<p>It fits.</p>",
        "e": "<div><pre>text</pre><button class='copy' style='position:absolute;top:20px;left:0'>Copy</button></div>",
    }  # fmt: skip
    for name, body in bodies.items():
        (tmp_path / f"{name}.html").write_text(AROUND.format(body), encoding="utf-8")
    command = ["node", "widths.mjs", shutil.which("chromium") or "", str(tmp_path)]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=120, check=False)
    told = done.stdout.splitlines()
    assert done.returncode == 1
    assert [line.partition(":")[0] for line in told[:-1]] == [
        "a.html at 1280", "a.html at 390", "b.html at 390", "c.html at 1280", "c.html at 390",
        "e.html at 1280", "e.html at 390",
    ]  # fmt: skip


def test_faint_text_of_a_site_is_found(tmp_path: Path) -> None:
    page = "<p style='color:#767676'>clear</p><div style='background:#ddd'><p style='color:#717171'>faint</p></div>"
    (tmp_path / "a.html").write_text(AROUND.format(page), encoding="utf-8")
    command = ["node", "contrast.mjs", shutil.which("chromium") or "", str(tmp_path)]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.count("faint\n"), "clear" in done.stdout) == (1, 3, False)
