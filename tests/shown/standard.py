"""The standard of pages: 25 points, each with a check of what a browser laid out, and a page that must be refused.

A check reads records of ``node/facts.mjs``. Its numbers are those of the standard: rem, pixels at 96 dpi, em, colours.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, pairwise
from math import atan2, degrees
from typing import Any

Facts = Mapping[str, Any]
Check = Callable[[Facts], Iterable[str]]
#: A page, and a piece of its text with the text that spoils it.
Change = tuple[str, str, str]

LIGHT = {
    "paper": "#FFFFFF", "ink": "#1B1C1E", "mute": "#5F6368", "rule": "#D9D7D2", "tint": "#F5F4F1",
    "query": "#C62828", "key": "#B45309", "value": "#6A1B9A", "score": "#1558B0", "weight": "#00707A",
    "output": "#1B6E2C", "input": "#2E7D32",
}  # fmt: skip
DARK = {
    "paper": "#15171A", "ink": "#E8E6E1", "mute": "#A3A8AE", "rule": "#363A40", "tint": "#1E2125",
    "query": "#FF8A80", "key": "#F2A65A", "value": "#D09BE8", "score": "#8AB4F8", "weight": "#5CC9D3",
    "output": "#86CF96", "input": "#8FD19E",
}  # fmt: skip
ROLES = tuple(LIGHT)[5:]
SIZES = (0.8125, 1, 1.25, 1.5625, 2.4414)
FAMILIES = {"SA Serif", "SA Math", "ui-monospace"}
FORMS = ("exact", "decimal", "float32", "error in ulp", "as printed", "rounded")


@dataclass(frozen=True)
class Point:
    """A point of the standard: the pages and states that its check reads, and what spoils one of them."""

    number: int
    check: Check
    spoiled: tuple[Change, ...]
    pages: tuple[str, ...] = ("walk",)
    states: tuple[str, ...] = ("whole",)
    devices: tuple[str, ...] = ("desktop", "phone")

    def faults(self, records: Iterable[Mapping[str, Any]]) -> list[str]:
        """What the check has against the records of pages, each with its place; one that it cannot read counts."""
        found, read = [], 0
        for record in records:
            if record["page"] in self.pages and record["device"] in self.devices:
                for state in self.states:
                    read += 1
                    facts = record[state] | {"state": state, "device": record["device"], "record": record}
                    found += [f"{record['page']}, {record['device']}, {state}: {fault}" for fault in self.check(facts)]
        return found if read else ["nothing to read"]


def near(a: float, b: float, within: float = 0.6) -> bool:
    return abs(a - b) <= within


def contrast(one: str, other: str) -> float:
    """The ratio of luminances, by WCAG 2.2; of something that has no colour of its own 1."""
    if not one.startswith("#") or not other.startswith("#"):
        return 1.0
    low, high = sorted(map(_luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


# -- letters and colours -----------------------------------------------------------------------------------------------
def fonts(facts: Facts) -> Iterator[str]:
    yield from (f"{text['family']} in {text['text']!r}" for text in facts["texts"] if text["family"] not in FAMILIES)
    yield from (f"{font} is not there" for font in facts["fonts"] if font[2] != "loaded")
    if facts["record"]["bytes"] > 60_000:
        yield f"{facts['record']['bytes']} bytes of fonts"


def sizes(facts: Facts) -> Iterator[str]:
    wanted = min(max(16, 0.0055 * facts["width"] + 12.5), 22)
    if not near(facts["rem"], wanted, 0.1):
        yield f"base {facts['rem']}, not {wanted}"
    for text in facts["texts"]:
        size, place = text["size"], text["place"]
        scale = {"math": (1, 1.06), "mtd": (1, 1.06), "code": (1, 0.84)}.get(place, (1,))
        of = (s * k * j for s in (*SIZES, 1.5 * SIZES[3]) for k in scale for j in _small(text))
        if facts["device"] == "desktop" and place != "svg" and not any(near(size, x, 0.012) for x in of):
            yield f"{size} rem: {text['text']!r} in {place}"
        if text["weight"] not in (400, 600) or (text["weight"] == 600 and place in ("mtd", "math", "where", "svg")):
            yield f"weight {text['weight']}: {text['text']!r}"


def _small(text: Facts) -> tuple[float, ...]:
    """Factors of letters below and above the line: once and twice, by the font's constants or by the style's."""
    return (1, 0.7, 0.55, 0.72, 0.5, 0.6) if text["place"] in ("math", "mtd", "small", "where") else (1,)


def colours(facts: Facts) -> Iterator[str]:
    wanted = DARK if facts["state"] == "dark" else LIGHT
    yield from (
        f"{name} {facts['variables'][name]}" for name in tuple(LIGHT)[:5] if facts["variables"][name] != wanted[name]
    )
    if facts["paper"] != wanted["paper"]:
        yield f"the page is {facts['paper']}"
    for text in facts["texts"]:
        if text["colour"] not in wanted.values() and text["place"] != "svg":
            yield f"{text['colour']}: {text['text']!r}"


def roles(facts: Facts) -> Iterator[str]:
    wanted, least = (DARK, 7.5) if facts["state"] == "dark" else (LIGHT, 4.9)
    for name in ROLES:
        shown = facts["variables"][name]
        if shown != wanted[name]:
            yield f"{name} is {shown}"
        if contrast(shown, wanted["paper"]) < least:
            yield f"{name} has a contrast of {contrast(shown, wanted['paper']):.2f}"


def letters(facts: Facts) -> Iterator[str]:
    wanted = DARK if facts["state"] == "dark" else LIGHT
    of: dict[str, set[str]] = {}
    for text in facts["texts"]:
        for role in ROLES:
            if text["colour"] == wanted[role] and text["place"] in ("math", "mtd", "where"):
                of.setdefault(role, set()).update(re.findall(r"[A-Za-z]", text["role"] or text["text"])[:1])
                if not re.search(r"[A-Za-z]", text["role"] or text["text"]):
                    yield f"{text['text']!r} is a {role} by its colour alone"
    yield from (f"{a} and {b} share {of[a] & of[b] - {'W'}}" for a, b in combinations(of, 2) if of[a] & of[b] - {"W"})
    for picture in facts["pictures"]:
        drawn = {(colour, mark) for colour, mark, _ in picture["series"] if colour in map(wanted.get, ROLES)}
        same = ((a, b) for a, b in combinations(sorted(drawn), 2) if a[0] != b[0] and a[1] == b[1])
        yield from (f"two lines of {picture['title']} by colour alone: {a}, {b}" for a, b in same)


def sparing(facts: Facts) -> Iterator[str]:
    wanted = DARK if facts["state"] == "dark" else LIGHT
    calm = {wanted["ink"], wanted["mute"], wanted["paper"]}
    for text in facts["texts"]:
        if not text["role"] and text["place"] not in ("svg", "math", "mtd", "where") and text["colour"] not in calm:
            yield f"colour on {text['text']!r} in {text['place']}"
        if text["place"] == "mtd" and not text["role"] and text["colour"] not in calm:
            yield f"colour in a matrix: {text['text']!r}"
    yield from (f"decorated: {name}" for name in facts["decorated"])
    yield from (f"a frame: {name}" for name in facts["framed"] if "differences" not in str(name))
    if facts["icons"]:
        yield f"{facts['icons']} icons"
    yield from (
        f"a sign that is a picture: {t['text']!r}"
        for t in facts["texts"]
        if re.search("[\U0001f300-\U0001faff]", t["text"])
    )


# -- the page ----------------------------------------------------------------------------------------------------------
def grid(facts: Facts) -> Iterator[str]:
    rem, (_, _, wide, _) = facts["rem"], facts["page"]
    if wide > 72 * rem + 1:
        yield f"{wide / rem:.1f} rem wide"
    if not near(facts["padding"], 1.1 if facts["device"] == "phone" else 2, 0.05):
        yield f"an edge of {facts['padding']} rem"
    for main, side in zip(facts["main"], facts["side"], strict=False):
        if facts["width"] <= 60 * rem:
            break
        if not near(side[2] / rem, 15, 0.05) or not near((side[0] - main[0] - main[2]) / rem, 3, 0.05):
            yield f"a margin of {side[2] / rem:.2f} rem, {(side[0] - main[0] - main[2]) / rem:.2f} from the text"
    if facts["width"] <= 60 * rem and any(side[0] > facts["main"][0][0] + 1 for side in facts["side"]):
        yield "a margin beside the text of a narrow page"
    if facts["wide"] > 0:
        yield f"{facts['wide']} pixels wider than the screen"


def steps(facts: Facts) -> Iterator[str]:
    fifth, whole = facts["record"]["fifth"], facts["record"]["whole"]
    named = [item["text"] for item in facts["nav"]]
    numbers = [str(n) for n in range(1, len(whole["steps"]) + 1)]
    titles = [re.sub(r"^(\d+)", r"\1 ", title) for title in whole["titles"]]
    if named != (titles if facts["width"] > 60 * facts["rem"] else numbers):
        yield f"the bar has {named}"
    current = [item for item in facts["nav"] if item["current"]]
    if [(x["colour"], x["under"], x["line"]) for x in current] != [(LIGHT["ink"], LIGHT["ink"], 2)]:
        yield f"the current step is shown as {current}"
    if [x["id"] for x in fifth["steps"]] != ["step-5"] or len(whole["ledes"]) != len(titles):
        yield "not one step, with its sentence"
    if [end.strip("← →") for end in fifth["ends"]] != [titles[3], titles[5]]:
        yield f"the foot names {fifth['ends']}"


def matrices(facts: Facts) -> Iterator[str]:
    if not facts["matrices"]:
        yield "no matrix"
    for matrix in facts["matrices"]:
        if facts["device"] == "desktop" and matrix["input"] and not near(matrix["size"], 2.34375, 0.01):
            alone = matrix["size"]
            if not near(alone, 1.25, 0.01):
                yield f"an input at {alone} rem"
        for row in matrix["columns"]:
            for (_, _, wide, high), (_, _, inner, deep), words, _ in row:
                em = matrix["size"] * facts["rem"]
                least = 0.28 if facts["device"] == "phone" else 0.45
                if (wide - inner) / 2 < least * em or (high - deep) / 2 < 0.1 * em:
                    yield f"no room around {words!r}"


def forms(facts: Facts) -> Iterator[str]:
    if not facts["forms"]:
        yield "no array has forms"
    for group in facts["forms"]:
        if [x["text"] for x in group] != [name for name in FORMS if name in {x["form"] for x in group}]:
            yield f"forms {[x['text'] for x in group]}"
        wanted = DARK if facts["state"] == "dark" else LIGHT
        for form in group:
            if (form["colour"], form["under"]) != (
                (wanted["ink"], wanted["ink"]) if form["on"] else (wanted["mute"], "")
            ):
                yield f"{form['text']} looks {form['colour']}, {form['under']}"
    yield from ("integers with a switch" for x in facts["switches"] if x["labels"] and x["values"])
    on = {form["form"] for group in facts["record"]["decimal"]["forms"] for form in group if form["on"]}
    if on != {"decimal"}:
        yield f"after the key d {on}"


def fractions(facts: Facts) -> Iterator[str]:
    if not facts["fractions"]:
        yield "no fraction"
    for fraction in facts["fractions"]:
        if fraction["style"] != "normal" or not near(fraction["size"], fraction["around"], 0.01):
            yield f"a small fraction, {fraction['size']} in {fraction['around']} rem"
        if fraction["first"].startswith(("−", "-")):
            yield f"a sign above the bar: {fraction['first']}"
    if "×" in facts["operators"] or "exp" in facts["functions"]:
        yield "× or exp in a formula"


def origins(facts: Facts) -> Iterator[str]:
    before, found = facts["record"]["fifth"], facts["record"]["pointed"]
    if before["layout"] != found["layout"] or [x["box"] for x in before["where"]] != [x["box"] for x in found["where"]]:
        yield "something jumps"
    if [(x["live"], x["position"]) for x in found["where"]] != [("polite", "fixed")] or not found["where"][0]["text"]:
        yield f"the line says {found['where']}"
    if not found["marked"] or any(style != "solid" or not 1 <= wide <= 1.5 for style, wide, _ in found["marked"]):
        yield f"the cell is framed by {found['marked']}"
    if not found["sources"] or any(shade not in ("11%", "12%") for shade, _ in found["sources"]):
        yield f"sources are {found['sources']}"
    stops = [sum(x[3] == 0 for row in m["columns"] for x in row) for m in before["matrices"]]
    if any(n > 1 for n in stops):
        yield f"{stops} cells of each array are reached by Tab"


# -- weights -----------------------------------------------------------------------------------------------------------
def heat(facts: Facts) -> Iterator[str]:
    if not facts["heat"] or any(row["total"] != "1" for row in facts["heat"]):
        yield "no rows that sum to 1"
    wanted = DARK if facts["state"] == "dark" else LIGHT
    for cell in (cell for row in facts["heat"] for cell in row["cells"]):
        weight = value(cell["small"])
        if cell["colour"] != wanted["paper" if weight > 0.6 else "ink"]:
            yield f"{cell['place']} has the colour {cell['colour']}"
        if not cell["background"].startswith("#"):
            yield f"{cell['place']} has no shade"
        elif weight > 0.05 and contrast(cell["background"], cell["colour"]) < 4.5:
            yield f"{cell['place']} cannot be read"
        if cell["exact"] == cell["small"] or not re.fullmatch(r"0\.0*[1-9]\d\d|\d\.\d\d·10.+", cell["small"]):
            yield f"{cell['place']} has {cell['exact']} and {cell['small']}"
    cells = [cell for row in facts["heat"] for cell in row["cells"] if cell["background"].startswith("#")]
    shades = sorted((value(cell["small"]), -_luminance(cell["background"])) for cell in cells)
    if facts["state"] != "dark" and any(a[1] > b[1] + 1e-9 for a, b in pairwise(shades)):
        yield "a heavier weight is lighter"
    if any(x != "2px" for x in facts["spacing"]):
        yield f"gaps of {facts['spacing']}"


def value(digits: str) -> float:
    """The number that digits of a page name: 6.03·10⁻⁶."""
    mantissa, _, power = digits.partition("·10")
    plain = power.translate(str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-"))
    return float(mantissa) * 10 ** int(plain or 0)


def arrows(facts: Facts) -> Iterator[str]:
    if len(facts["arrows"]) != len(facts["heat"]):
        yield f"{len(facts['arrows'])} pictures for {len(facts['heat'])} queries"
    for arrow in facts["arrows"]:
        weights = [value(x) for x in re.findall(r"([\d.]+(?:·10[⁻⁰-⁹¹²³]+)?) on", arrow["said"])]
        if len(weights) != len(arrow["lines"]):
            yield f"{len(arrow['lines'])} lines for {weights}"
        for weight, line in zip(weights, arrow["lines"], strict=False):
            if not near(line["wide"], max(14 * weight, 0.8), 0.01) or line["dotted"] != (14 * weight < 0.8):
                yield f"a weight of {weight} is drawn as {line}"


def grades(facts: Facts) -> Iterator[str]:
    if not facts["grades"]:
        yield "no grade"
    wanted = DARK if facts["state"] == "dark" else LIGHT
    yield from facts["touching"]
    for grade in facts["grades"]:
        if not re.match(r"[∎∴✓≈✗?] [a-z]+", grade["text"]) or (grade["tag"], grade["line"]) != ("DETAILS", "dotted"):
            yield f"a grade as {grade}"
        if grade["colour"] != wanted["ink"] or len(grade["inside"]) < 10:
            yield f"{grade['text']}: {grade['colour']}, {grade['inside']}"


def differences(facts: Facts) -> Iterator[str]:
    if not facts["differences"]:
        yield "no table of differences"
    for table in facts["differences"]:
        wanted = ["exact", "printed", "difference", "decimal"]
        if table["heads"][1:] != (wanted[1:] if facts["device"] == "phone" else wanted):
            yield f"columns {table['heads']}"
        if set(table["aligned"][1 :: len(table["heads"])]) != {"right"}:
            yield "numbers are not at the right"


# -- pictures ----------------------------------------------------------------------------------------------------------
def pictures(facts: Facts) -> Iterator[str]:
    if not facts["pictures"]:
        yield "no picture"
    for picture in facts["pictures"]:
        name = picture["title"]
        if picture["view"].split()[2] != "480" or not name or not picture["desc"]:
            yield f"{name}: {picture['view']}, {picture['desc']}"
        if picture["gradients"] or picture["legends"] or picture["frames"]:
            yield f"{name} has a legend, a frame or a gradient"
        wanted = DARK if facts["state"] == "dark" else LIGHT
        if odd := {colour for colour, _, _ in picture["series"]} - set(wanted.values()):
            yield f"{name} has the colours {odd}"
        if any(size < 9 for size in picture["letters"] if size):
            yield f"{name}: letters of {min(picture['letters']):.1f} pixels"


def projected(facts: Facts) -> Iterator[str]:
    """Keys at their true angles to the query; what is projected says how far it lies off."""
    words = " ".join(x["words"] for x in facts["pictures"])
    parts = ("angles to the query, are true", "25.7°", "59.0°", "in the plane of two values", "0.094 off")
    yield from (f"the picture of king and cricketer does not say {part}" for part in parts if part not in words)
    keys = {angle(d) for x in facts["pictures"] for colour, _, d in x["series"] if colour == LIGHT["key"]}
    for wanted in (25.7, 59.0, 4.9, 64.4):
        if not any(near(wanted, found, 0.5) for found in keys):
            yield f"no key at {wanted}°, but at {sorted(map(round, keys))}"


def angle(path: str) -> float:
    """The direction of a line from its first point to its last, in degrees, upwards."""
    x0, y0, *_, x1, y1 = map(float, re.findall(r"-?\d+\.?\d*", path))
    return degrees(atan2(y0 - y1, x1 - x0))


def landing(facts: Facts) -> Iterator[str]:
    boxes, questions = facts["box"], facts["questions"]
    if not all(boxes[x] for x in ("h1", ".landing-words", ".landing-picture", ".landing-three")) or len(questions) != 3:
        yield f"{len(questions)} questions; {boxes}"
    elif facts["device"] == "desktop":
        seen = [boxes["h1"], boxes[".landing-picture"], *(box for _, box in questions)]
        yield from (f"{box} is below 800 pixels" for box in seen if box[1] + box[3] > 800)
    yield from (f"{words!r} is no question" for words, _ in questions if not words.endswith("?"))
    yield from (f"{facts['wide']} pixels too wide" for _ in range(facts["wide"] > 0))


# -- what browsers do to MathML ----------------------------------------------------------------------------------------
def aligned(facts: Facts) -> Iterator[str]:
    for matrix in facts["matrices"]:
        for column in zip(*matrix["columns"], strict=True):
            for (x, _, wide, _), (left, _, inner, _), words, _ in column:
                before, after = left - x, x + wide - left - inner
                if matrix["roomy"] and not near(before, after, 1.5):
                    yield f"{words!r} is not in the middle: {before:.1f}, {after:.1f}"
                if not matrix["roomy"] and after > before + 1.5:
                    yield f"{words!r} is not at the right: {before:.1f}, {after:.1f}"


def hidden(facts: Facts) -> Iterator[str]:
    yield from (f"{x['shown']} forms of an array" for x in facts["record"]["fifth"]["switches"] if x["shown"] > 1)
    for state in ("fifth", "decimal"):
        found = facts["record"][state]
        if len(found["matrices"]) != len(facts["record"]["fifth"]["matrices"]):
            yield f"{len(found['matrices'])} matrices in {state}"
        yield from (
            f"displayed as {m['display']}" for m in found["matrices"] if m["display"] not in ("block math", "block")
        )
    for fraction in facts["fractions"]:
        (_, top, _, high), (_, low, _, _) = fraction["parts"]
        if top + high > low + 1:
            yield "a fraction in one line"


def tall(facts: Facts) -> Iterator[str]:
    inside = [x for x in facts["fractions"] if x["cell"]]
    if not inside:
        yield "no fraction in a matrix"
    yield from (f"{x['size']} rem in a matrix" for x in inside if not near(x["size"], x["around"], 0.01))
    if facts["wide"] > 0:
        yield "formulas make the page wider than the screen"


def plain(facts: Facts) -> Iterator[str]:
    if facts["bold"]:
        yield f"{facts['bold']} elements that browsers ignore"
    yield from (f"no alternative for {text!r}" for text in facts["unnamed"])


def stretched(facts: Facts) -> Iterator[str]:
    for matrix in facts["matrices"]:
        if len(matrix["fences"]) != 2 or any(box[3] < 0.9 * matrix["box"][3] for box in matrix["fences"]):
            yield f"brackets of {[box[3] for box in matrix['fences']]} around {matrix['box'][3]}"
    yield from (f"an index at {b / a:.2f}" for a, b, *_ in facts["scripts"] if b > max(0.85 * a, 0.67 * facts["rem"]))
    yield from ("a root without its sign" for whole, inner in facts["roots"] if inner[0] - whole[0] < 4)


def anchored(facts: Facts) -> Iterator[str]:
    yield from (f"{x['id']} scrolls under the bar" for x in facts["steps"] if x["scroll"] * facts["rem"] < 48)
    fifth = facts["record"]["fifth"]
    if not fifth["steps"] or fifth["steps"][0]["box"][1] < fifth["header"][1] + fifth["header"][3] - 1:
        yield "step 5 opens under the header"
    yield from (f"{words!r} is too small for a finger" for words in facts["small"])
    if facts["copies"] != facts["arrays"]:
        yield f"of {facts['arrays']} arrays and formulas {facts['copies']} can be copied as LaTeX"


_STYLE = "</style>"
_OVER = ".sa-main :is(h2,p,aside){display:none}.symattn.symattn :is(.sa-side,.sa-main){grid-area:1/1}"


def _point(number: int, check: Check, *spoiled: str | Change, pages: str = "walk", dark: bool = False) -> Point:
    """A point; what spoils it is a rule of style within a walk, or a change of a page."""
    changes = (x if isinstance(x, tuple) else ("walk", _STYLE, f".symattn.symattn {x}{_STYLE}") for x in spoiled)
    return Point(number, check, tuple(changes), tuple(pages.split()), ("whole", "dark") if dark else ("whole",))


def _walk(right: str, wrong: str) -> Change:
    return "walk", right, wrong


def _picture(right: str, wrong: str) -> Change:
    return "pictures", right, wrong


_GRADED = "walk prove derive"
_EVERY = f"{_GRADED} verify compare audit explore scaling"

STANDARD: tuple[Point, ...] = (
    _point(1, fonts, "h2{font-family:Arial}", _walk("SA Math'", "SA Maths'"), pages=_EVERY),
    _point(2, sizes, "h2{font-size:1.7rem}", "p{font-weight:500}", pages=_EVERY),
    _point(3, colours, "{--sa-mute:#777}", pages=_EVERY, dark=True),
    _point(4, roles, "{--sa-key:#C75B00}", pages=_EVERY, dark=True),
    _point(5, letters, ".heat mn{color:var(--sa-query)}", pages=f"{_EVERY} pictures"),
    _point(6, sparing, "p{color:var(--sa-score)}", "figure{border:1px solid}", pages=_EVERY, dark=True),
    _point(7, grid, "{padding:3rem}", ".sa-side{width:20rem}", ".sa-main{width:80rem}", pages=_EVERY),
    _point(8, steps, ".steps a[aria-current]{border-color:red}", ".lede{display:none}", _walk("now + 1", "now")),
    _point(9, matrices, "mtd{padding:0}", ".large math{font-size:1rem}"),
    _point(10, forms, ".forms label{color:var(--sa-ink)}", _walk("choose(formOf(key))", "0"), dark=True),
    _point(11, fractions, "mfrac{math-style:compact}", _walk("<mo>+</mo>", "<mo>×</mo>")),
    _point(12, origins, ".at{padding:9px}", ".from{background:none}", ".at{outline:0}", _walk("i ? -1 : 0", "0")),
    _point(13, heat, ".heat td{background:none!important}", ".heat td.over{color:var(--sa-ink)}", dark=True),
    _point(14, arrows, ".arrows path{stroke-width:2px}", ".arrows path{stroke-dasharray:none}"),
    _point(15, grades, ".grade summary{color:#1B6E2C}", _OVER, pages=_GRADED, dark=True),
    _point(16, differences, ".differences td{text-align:left}", ".differences th:nth-child(2){display:none}"),
    _point(
        17,
        pictures,
        _picture("0 0 480", "0 0 800"),
        _picture("<desc", "<metadata"),
        _picture("var(--s,#1558B0)", "#CC0000"),
        pages="pictures",
        dark=True,
    ),
    _point(18, projected, _picture("0.094 off", "not far off"), _picture("M", "M9 "), pages="pictures"),
    _point(
        19, landing, ("landing", "</head>", "<style>h1{margin-top:700px!important}</style></head>"), pages="landing"
    ),
    _point(20, aligned, "mtd{text-align:left}", ".roomy mtd{text-align:right;text-align:-webkit-right}"),
    _point(21, hidden, ".form{display:block!important}", "mfrac{display:inline-flex}"),
    _point(22, tall, "mtd mfrac>*{font-size:60%}", ".wide{overflow:visible}.symattn.symattn mtd{padding:0 6em}"),
    _point(23, plain, _walk("<mi>", '<mi mathvariant="bold">'), _walk("alttext=", "title="), pages=_EVERY),
    _point(24, stretched, _walk('stretchy="true"', 'stretchy="false"'), "msub>*{font-size:1rem}", pages=_EVERY),
    _point(25, anchored, ".step{scroll-margin-top:0}", ".forms label{line-height:9px}", _walk("  copies();", "")),
)
"""The points in their order; the last six are on what browsers do to MathML."""
