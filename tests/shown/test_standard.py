"""Pages reach the standard in Chromium and Firefox, on a desktop and a phone, in light and dark; others are refused."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.shown.documents import of_each_kind
from tests.shown.standard import STANDARD, Point
from tests.shown.test_browser import BROWSERS, faults, told

pytestmark = [pytest.mark.browser, pytest.mark.docs]

_BASE64 = re.compile(r"base64,([A-Za-z0-9+/=]+)")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return of_each_kind(tmp_path_factory.mktemp("site"))


def look(pages: Iterable[tuple[str, str]], folder: Path, browser: str, device: str = "") -> list[dict[str, Any]]:
    """What a browser lays out, on one device or each, with the names of the pages and the bytes of their fonts."""
    named = list(pages)
    found = told("look", [page for _, page in named], folder, browser, device=device)
    each = len(found) // len(named)
    for number, seen in enumerate(found):
        name, page = named[number // each]
        seen |= {"page": name, "bytes": sum(len(x) * 3 // 4 for x in _BASE64.findall(page))}
    return found


@pytest.fixture(scope="module", params=BROWSERS)
def seen(request: pytest.FixtureRequest, pages: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Any:
    return look(pages.items(), tmp_path_factory.mktemp("pages"), request.param)


@pytest.mark.parametrize("point", STANDARD, ids=lambda point: f"{point.number}-{point.check.__name__}")
def test_pages_reach(point: Point, seen: list[dict[str, Any]]) -> None:
    read = [record for record in seen if record["page"] in point.pages]
    assert [(record["page"], record["device"], fault) for record in read for fault in faults(record)] == []
    assert point.faults(seen) == []


def test_what_falls_short_is_refused(pages: dict[str, str], tmp_path: Path) -> None:
    left = [(point, change) for point in STANDARD for change in point.spoiled]
    assert [change for _, change in left if change[1] not in pages[change[0]]] == []
    for device in ("desktop", "phone"):  # what a wide page bears is tried on a narrow one
        spoiled = [(name, pages[name].replace(right, wrong)) for _, (name, right, wrong) in left]
        read = look(spoiled, tmp_path, "chrome", device) if spoiled else []
        left = [one for one, record in zip(left, read, strict=True) if not one[0].faults([record])]
    assert [(point.number, change) for point, change in left] == []
