"""The page of the reproduction in a real browser: no network, no errors, legible in every size and colour scheme."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright for Python is not installed")

ROOT = Path(__file__).parents[2]
CHROMIUM = Path("/usr/bin/chromium")
pytestmark = pytest.mark.skipif(not CHROMIUM.exists(), reason=f"there is no browser at {CHROMIUM}")

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SIZES = {"desktop": (1280, 900), "phone": (390, 844)}

# The least contrast (WCAG) of any element that shows text of its own, with the worst element.
CONTRAST = """
() => {
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const luminance = (rgb) => {
    const [r, g, b] = rgb.map((v) => v / 255).map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const background = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || (c.length === 4 && c[3] === 1)) return c.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const opacity = (element) => {
    let value = 1;
    for (let e = element; e; e = e.parentElement) value *= Number(getComputedStyle(e).opacity);
    return value;
  };
  let worst = [99, "", 0];
  for (const element of document.body.querySelectorAll("*")) {
    const own = [...element.childNodes].filter((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own.length || ["SCRIPT", "STYLE"].includes(element.tagName)) continue;
    const back = background(element), share = opacity(element);
    const ink = parse(getComputedStyle(element).color).slice(0, 3).map((v, i) => share * v + (1 - share) * back[i]);
    const [a, b] = [luminance(ink), luminance(back)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    worst[2] += 1;
    if (ratio < worst[0]) { worst[0] = ratio; worst[1] = element.tagName + " " + own[0].textContent.slice(0, 40); }
  }
  return worst;
}
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, shell: Any) -> dict[str, Path]:
    """Make the page of the reproduction, and that of a comparison, which is built from the same parts."""
    folder = tmp_path_factory.mktemp("pages")
    shell(f"python {ROOT}/scripts/reproduce.py --quick --output {folder}")
    shell(f"python {ROOT}/scripts/compare.py --preset baselines --private 50 --releases 1 --output {folder}")
    return {"reproduction": folder / "reproduction.html", "comparison": folder / "comparison.html"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=str(CHROMIUM), args=list(FLAGS))
        yield chromium
        chromium.close()


@pytest.fixture
def visit(browser: Any, pages: dict[str, Path]) -> Iterator[Any]:
    """Return a function that opens the page; at the end nothing may have gone wrong."""
    requests: list[str] = []
    problems: list[str] = []
    contexts = []

    def open_page(size: str = "desktop", scheme: str = "light", name: str = "reproduction") -> Any:
        width, height = SIZES[size]
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.on("requestfailed", lambda request: problems.append(f"failed: {request.url}"))
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(pages[name].as_uri(), wait_until="load")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert requests and all(url.startswith(("file:", "data:")) for url in requests)
    assert not problems


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("name", "figures", "tables"), [("reproduction", 7, 9), ("comparison", 3, 2)])
def test_every_figure_is_visible_and_nothing_sticks_out(visit, size, name, figures, tables):
    page = visit(size, name=name)
    width = SIZES[size][0]
    pictures = page.locator("img")
    assert pictures.count() == figures
    for picture in pictures.all():
        picture.scroll_into_view_if_needed()
        assert picture.evaluate("e => e.complete && e.naturalWidth") > 600
        box = picture.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= width and box["height"] > 80
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    boxes = page.locator("div.table")
    assert boxes.count() == tables
    wide = [box.evaluate("e => e.scrollWidth > e.clientWidth") for box in boxes.all()]
    assert size == "desktop" or any(wide)  # on a phone the wide ones scroll in their own box, and say so
    assert [box.evaluate("e => e.classList.contains('wide')") for box in boxes.all()] == wide
    for box in boxes.all():
        assert box.evaluate("e => getComputedStyle(e).overflowX") == "auto"
        assert box.bounding_box()["width"] <= width


def test_tables_sort_by_a_click(visit):
    page = visit()
    table = page.locator("table", has=page.get_by_role("button", name="in the event, kWh"))
    column = table.locator("th").count()

    def numbers() -> list[float]:
        texts = table.locator(f"tbody td:nth-child({column})").all_inner_texts()
        return [float(text.replace(",", "")) for text in texts]

    before = numbers()
    heading = table.get_by_role("button", name="in the event, kWh")
    heading.click()
    assert numbers() == sorted(before, reverse=True) != before
    heading.click()
    assert numbers() == sorted(before)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["reproduction", "comparison"])
def test_text_is_legible_in_both_schemes(visit, scheme, name):
    page = visit("desktop", scheme, name)
    ratio, where, count = page.evaluate(CONTRAST)
    assert count > 100 and ratio >= 4.5, where
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
    # Figures are drawn on white, and stay on a white card in the dark.
    card = page.locator("img").first.evaluate("e => getComputedStyle(e).backgroundColor")
    assert scheme == "light" or card == "rgb(255, 255, 255)"


def test_contrast_would_notice_pale_text(visit):
    page = visit()
    page.add_style_tag(content="figcaption { color: #999 !important; }")
    ratio, where, _ = page.evaluate(CONTRAST)
    assert ratio < 3 and where.startswith("FIGCAPTION")


VERDICTS = ("✓ reproduced", "≈ reproduced in shape", "∅ not reproducible", "✗ contradicted")


def test_claims_have_a_verdict_in_every_column(visit):
    page = visit()
    claims, facts = page.locator("table.stack").all()
    assert claims.locator("th").all_inner_texts()[1:] == ["without data", "synthetic campus", "paper"]
    assert facts.locator("th").all_inner_texts()[1:] == ["synthetic campus", "paper"]
    for table, column, least in ((claims, 3, 20), (facts, 2, 8)):
        cells = table.locator(f"tbody td:nth-child({column})").all_inner_texts()
        assert len(cells) > least
        for cell in cells:
            assert cell.startswith(VERDICTS), cell


def test_phone_shows_the_verdicts_without_scrolling(visit):
    """Each claim is a block of its own: verdict below the claim, nothing wider than the screen, no empty cells."""
    page = visit("phone")
    for table in page.locator("table.stack").all():
        assert table.evaluate("e => e.parentElement.scrollWidth <= e.parentElement.clientWidth")
        for row in table.locator("tbody tr").all():
            cells = [cell for cell in row.locator("td").all() if cell.is_visible()]
            assert all(cell.inner_text().strip() not in ("", "–") for cell in cells)
            boxes = [cell.bounding_box() for cell in cells]
            assert all(box["x"] >= 0 and box["x"] + box["width"] <= SIZES["phone"][0] for box in boxes)
            assert boxes[1]["y"] >= boxes[0]["y"] + boxes[0]["height"] - 1
            used = sum(box["height"] for box in boxes)
            assert row.bounding_box()["height"] <= used + 30  # no tall empty rows


def test_figures_are_legible_at_every_width(visit):
    """Figures are drawn 3.5 inches wide with text of at least 7.5 points; on a phone that is at least 10 pixels."""
    for size, most in (("desktop", 38 * 16 + 13), ("phone", 390)):
        for picture in visit(size).locator("figure.column img").all():
            width = picture.bounding_box()["width"]
            assert width <= most and 7.5 / 72 * width / 3.5 >= 10
