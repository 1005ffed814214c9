"""Everything that is printed compiles in pdflatex and fits its page."""

import re
import shutil
import subprocess
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

import pytest

from symattn import Document
from symattn import printing as pr
from tests.document.render import samples

pytestmark = pytest.mark.latex

EVERY_CHARACTER = "".join(
    chr(c)
    for first, last in (
        (32, 127), (0xA0, 0x180), (0x370, 0x400), (0x1D62, 0x1D6B), (0x2010, 0x2030), (0x2070, 0x20A0),
        (0x2100, 0x2140), (0x2190, 0x2300), (0x2308, 0x230C), (0x2C7C, 0x2C7D), (0x1D7CE, 0x1D7D8),
    )
    for c in range(first, last)
) + "漢字🙂ẽ̂"  # fmt: skip
SIGNS = ("=", "≠", "<", "≤", ">", "≥", "≈", "∝", "→", "∈")


def compiled(source: str, folder: Path) -> str:
    """The log of pdflatex, which must succeed."""
    assert shutil.which("pdflatex"), "pdflatex is missing"
    (folder / "it.tex").write_text(source, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "it.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=300, check=False)
    log = done.stdout.decode(errors="replace")
    assert done.returncode == 0, "\n".join(re.findall(r"^(?:AT |!|l\.\d+).*", log, re.MULTILINE)[-3:])
    return log


def together(documents: Iterable[tuple[str, Document]], folder: Path) -> str:
    """Return the log of documents that are compiled as one; the name of each stands before what is said of it."""
    sources = {name: pr.render(document, "latex") for name, document in documents}
    (preamble,) = {source.partition(r"\begin{document}")[0].partition("\n")[2] for source in sources.values()}
    parts = [preamble, r"\begin{document}"]
    for name, source_of_one in sources.items():
        source = source_of_one.replace(r"\tableofcontents", "")  # of another run
        body = source.partition(r"\begin{document}")[2].partition(r"\end{document}")[0]
        parts.append(f"\\typeout{{AT {name}}}%\n{body}\\clearpage")
    return compiled("\n".join((*parts, "\\end{document}\n")), folder)


def overfull(log: str) -> list[str]:
    return [m[0] for m in re.finditer(r"Overfull \\hbox \(([\d.]+)pt.*", log) if float(m[1]) > 1]


def everything() -> Document:
    """Every node in every place, as steps of one document."""
    x, y = pr.name("x"), pr.Name("y", (pr.node(1),), "score")
    wide = pr.matrix([[pr.node(i + j) for j in range(14)] for i in range(3)])
    parts: list[pr.Node] = [
        *(pr.Name(base, (x, pr.node(12)), "query", bold) for base in samples.BASES for bold in (False, True)),
        *(pr.relation(x, sign, y) for sign in SIGNS),
        *(pr.Fence(style, pr.Over(x, y), x) for style in samples.FENCES),
        *(pr.Big(op, pr.name("i"), pr.node(1), pr.name("n"), pr.Fence("norm", x)) for op in samples.OPERATORS),
        pr.Power(pr.Name("S'", (x,)), pr.node(2)),
        pr.Transposed(pr.Name("S''", role="score")),
        pr.Decimal("-1.5e-10"),
        pr.Decimal("nan"),
        pr.Decimal("-inf"),
        pr.Number(Fraction(-157, 100)),
        pr.Words("for every ε ≤ 1, 100 % of {x}_i & #~^\\ “é”"),
        wide,
        pr.call("f", pr.equals(x, y), wide),
    ]
    steps = tuple(pr.Step(part, ("because ", part)) for part in parts if part is not wide)
    long = pr.Sum(tuple(pr.name("a", i) * pr.name("b", i) for i in range(40)))
    return Document(
        kind="listing",
        name="everything",
        title=("All & everything: ", x, " 50 % #1_2"),
        command="symattn derive --x '%&_#{}~^\\'",
        blocks=(
            pr.Paragraph((" ".join(EVERY_CHARACTER),)),
            pr.Steps(steps),
            pr.Steps((pr.Step(pr.equals(x, long, y)), pr.Step(pr.equals(x, wide + long)))),
            pr.Result("R_1 & more", (wide, pr.equals(x, long), pr.Row((x,) * 60)), ()),
            pr.Listing("\n".join((*re.findall(".{1,8}", EVERY_CHARACTER), "long " * 40))),
            pr.Table((pr.Column(("a_b",)), pr.Column((x,), "left")), ((("1 & 2",), ("word " * 30,)),), (0,)),
        ),
    )


@pytest.mark.parametrize("sample", [samples.derivation, samples.walk, everything])
def test_documents_compile_and_fit(sample: samples.Sample, tmp_path: Path) -> None:
    assert overfull(compiled(pr.render(sample(), "latex"), tmp_path)) == []


@pytest.mark.parametrize("sample", [samples.derivation, samples.walk, everything])
def test_fragments_compile_in_a_plain_article(sample: samples.Sample, tmp_path: Path) -> None:
    fragment = pr.render(sample(), "latex", fragment=True)
    packages = re.search(r"Needs (\\usepackage\{[a-z,]+\})", fragment)
    assert packages
    head = f"\\documentclass{{article}}\n\\usepackage[T1]{{fontenc}}\n{packages[1]}\n\\begin{{document}}\n"
    compiled(head + fragment + "\\end{document}\n", tmp_path)


def test_of_documents_that_are_compiled_as_one_a_wide_one_is_noticed(tmp_path: Path) -> None:
    wide = Document("listing", "x", ("x",), (pr.Steps((pr.Step(pr.Name("W" * 60)),)),))
    log = together((("first", samples.walk()), ("wide", wide), ("last", samples.derivation())), tmp_path)
    assert [part.split()[0] for part in log.split("\nAT ")[1:] if overfull(part)] == ["wide"]


def test_words_survive(tmp_path: Path) -> None:
    assert pr.tex(pr.Words("a_b")) == r"\text{a\_b}"
    odd = Document("listing", "x", ("x",), (pr.Paragraph(("漢",)),))
    assert r"\texttt{U+6F22}" in odd.latex().splitlines()


@pytest.mark.parametrize("lines", range(16, 34, 3))
def test_no_heading_stands_alone_at_the_foot_of_a_page(lines: int, tmp_path: Path) -> None:
    """A chapter, its first section and the section's box are on one page, wherever on the page they come."""
    filled = tuple(pr.Paragraph((f"line {i}",)) for i in range(lines))
    box = pr.Result("Theorem", (pr.equals("a", "b"),), ())
    blocks = (*filled, pr.Heading(("Chapter",)), pr.Paragraph(("words",)), pr.Heading(("Section",), 2), box)
    compiled(pr.render(Document("listing", "x", ("x",), blocks), "latex"), tmp_path)
    told = subprocess.run(["pdftotext", "-layout", "it.pdf", "-"], cwd=tmp_path, capture_output=True, check=True)
    pages = told.stdout.decode().split("\f")
    words = ("Chapter", "Section", "Theorem")
    assert {i for i, page in enumerate(pages) for word in words if word in page} in ({0}, {1})
