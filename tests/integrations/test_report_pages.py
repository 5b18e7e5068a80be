"""Reports and the game in a real browser: no network, no errors, legible and operable in every size and scheme."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from dp_ensemble_env.play.server import PlayServer

sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright for Python is not installed")

ROOT = Path(__file__).parents[2]
CHROMIUM = Path("/usr/bin/chromium")
pytestmark = pytest.mark.skipif(not CHROMIUM.exists(), reason=f"there is no browser at {CHROMIUM}")

FLAGS = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking".split()
FLAGS += ["--disable-component-update", "--disable-sync"]
SIZES = {"desktop": (1280, 800), "phone": (390, 844)}
NAMES = ("reproduction", "compare", "demo")

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
    if (!own.length || ["SCRIPT", "STYLE", "NOSCRIPT"].includes(element.tagName)) continue;
    const back = background(element), share = opacity(element), style = getComputedStyle(element);
    const shown = parse(element instanceof SVGElement ? style.fill : style.color);
    const ink = shown.slice(0, 3).map((v, i) => share * v + (1 - share) * back[i]);
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
    """Make a page of every kind; all are built by one template."""
    folder = tmp_path_factory.mktemp("pages")
    shell(f"python -m dp_ensemble_env reproduce --quick --output {folder}")
    shell(f"python {ROOT}/scripts/compare.py --seeds 0 --output {folder}")
    shell(f"python -m dp_ensemble_env.experiments.demo {folder}")
    return {name: folder / f"{name}.html" for name in NAMES}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def visit(browser: Any, pages: dict[str, Path]) -> Iterator[Any]:
    """Return a function that opens the page; at the end nothing may have gone wrong."""
    requests: list[str] = []
    problems: list[str] = []
    contexts = []

    def open_page(size: str = "desktop", scheme: str = "light", name: str = "reproduction", **more: Any) -> Any:
        width, height = SIZES[size]
        view: Any = {"width": width, "height": height}
        context = browser.new_context(viewport=view, color_scheme=scheme, **more)
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
@pytest.mark.parametrize("name", NAMES)
def test_every_figure_is_visible_and_nothing_sticks_out(visit, size, name):
    page = visit(size, name=name)
    width = SIZES[size][0]
    live, plain = page.locator("figure.chart .live > svg"), page.locator("figure:not(.chart) img")
    assert live.count() == (1 if name == "reproduction" else 2)
    assert plain.count() == {"reproduction": 6}.get(name, 0)
    assert not any(picture.is_visible() for picture in page.locator("img.plain").all())
    for figure in (*live.all(), *plain.all()):
        figure.scroll_into_view_if_needed()
        box = figure.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= width and box["height"] > 80
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    boxes = page.locator("div.table")
    wide = [box.evaluate("e => e.scrollWidth > e.clientWidth") for box in boxes.all()]
    assert size == "desktop" or any(wide) or name == "demo"  # on a phone they scroll in their box
    assert [box.evaluate("e => e.classList.contains('wide')") for box in boxes.all()] == wide
    for box in boxes.all():
        assert box.evaluate("e => getComputedStyle(e).overflowX") == "auto"
        assert box.bounding_box()["width"] <= width


@pytest.mark.parametrize("name", NAMES)
def test_findings_and_the_first_figure_are_on_the_first_screen(visit, name):
    page = visit(name=name)
    assert page.locator(".takeaways li").count() >= 3
    for part in (page.locator(".takeaways li").first, page.locator("figure.chart svg").first):
        box = part.bounding_box()
        assert box["y"] + box["height"] <= SIZES["desktop"][1]
    words, figure = page.locator(".takeaways").bounding_box(), page.locator("figure.chart").first.bounding_box()
    assert words["x"] + words["width"] <= figure["x"]  # side by side


@pytest.mark.parametrize("name", NAMES)
def test_plain_pictures_on_paper_and_without_scripts(visit, name):
    page = visit(name=name)
    page.emulate_media(media="print")
    silent = visit(name=name, java_script_enabled=False)
    for shown in (page, silent):
        pictures = shown.locator("figure.chart img.plain")
        assert pictures.count() >= 1 and all(picture.is_visible() for picture in pictures.all())
        assert not any(live.is_visible() for live in shown.locator(".live, .control").all())
    assert not page.locator("nav").is_visible() and silent.locator("nav").is_visible()


def test_a_phone_shows_the_bars_of_the_demonstration_at_once(visit, pages):
    assert pages["demo"].stat().st_size < 300_000
    bars = visit("phone", name="demo").locator("figure.chart").first.locator("svg[role] rect")
    boxes = [bar.bounding_box() for bar in bars.all()]
    assert len(boxes) == 3 and all(box["y"] + box["height"] <= SIZES["phone"][1] for box in boxes)


def test_values_and_series_by_mouse_and_keyboard(visit):
    page = visit(name="compare")
    chart = page.locator("figure.chart").last
    svg, values = chart.locator(".live > svg"), chart.locator(".values")
    lines = chart.locator("path[data-name]")
    svg.scroll_into_view_if_needed()
    box = svg.bounding_box()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.5 * box["height"])
    assert values.is_visible() and "uncontrolled" in values.inner_text() and ":" in values.inner_text()
    page.mouse.move(0, 0)
    assert not values.is_visible()
    svg.focus()
    page.keyboard.press("End")
    last = values.inner_text()
    page.keyboard.press("ArrowLeft")
    assert values.is_visible() and values.inner_text() != last
    page.keyboard.press("Escape")
    assert not values.is_visible()
    count, button = lines.count(), chart.get_by_role("button", name="uncontrolled")
    assert button.get_attribute("aria-pressed") == "true"
    button.focus()
    page.keyboard.press("Enter")
    assert button.get_attribute("aria-pressed") == "false" and lines.count() == count - 1
    page.keyboard.press("Space")
    assert lines.count() == count


def test_words_are_explained_and_focus_is_seen(visit):
    page = visit(name="compare")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    term, tip = page.locator("a.term").first, page.locator("#tip")
    term.focus()
    assert tip.is_visible() and len(tip.inner_text()) > 20
    page.keyboard.press("Escape")
    assert not tip.is_visible()
    page.keyboard.press("Tab")
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    links = page.locator("nav a").all()
    assert len(links) >= 4
    for link in links:
        assert page.locator(link.get_attribute("href")).count() == 1
    unnamed = "e => [...e].filter((x) => !(x.textContent.trim() || x.ariaLabel || x.labels?.length)).length"
    assert page.locator("button, input, a, svg[tabindex]").evaluate_all(unnamed) == 0


def test_tables_sort_by_a_click(visit):
    page = visit()
    table = page.locator("table", has=page.get_by_role("button", name="in the event, kWh"))
    column = table.locator(f"tbody td:nth-child({table.locator('th').count()})")

    def numbers() -> list[float]:
        return [float(text.replace(",", "")) for text in column.all_inner_texts()]

    before = numbers()
    heading = table.get_by_role("button", name="in the event, kWh")
    heading.click()
    assert numbers() == sorted(before, reverse=True) != before
    heading.click()
    assert numbers() == sorted(before)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", NAMES)
def test_text_is_legible_in_both_schemes(visit, scheme, name):
    page = visit("desktop", scheme, name)
    ratio, where, count = page.evaluate(CONTRAST)
    assert count > 100 and ratio >= 4.5, where
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
    # Pictures are drawn on white, and stay on a white card in the dark.
    card = page.locator("img").first.evaluate("e => getComputedStyle(e).backgroundColor")
    assert scheme == "light" or card == "rgb(255, 255, 255)"


def test_contrast_would_notice_pale_text(visit):
    page = visit()
    page.add_style_tag(content="figcaption { color: #999 !important; }")
    ratio, where, _ = page.evaluate(CONTRAST)
    assert ratio < 3 and where.startswith("FIGCAPTION")


VERDICTS = ("✓ reproduced", "≈ reproduced in shape", "∅ not reproducible", "✗ contradicted")


def test_claims_have_a_verdict_in_every_column(visit):
    claims, facts = visit().locator("table.stack").all()
    assert claims.locator("th").all_inner_texts()[1:] == ["without data", "synthetic campus", "paper"]
    assert facts.locator("th").all_inner_texts()[1:] == ["synthetic campus", "paper"]
    for table, column, least in ((claims, 3, 20), (facts, 2, 8)):
        cells = table.locator(f"tbody td:nth-child({column})").all_inner_texts()
        assert len(cells) > least
        for cell in cells:
            assert cell.startswith(VERDICTS), cell


def test_phone_shows_the_verdicts_without_scrolling(visit):
    """Each claim is a block of its own: verdict below the claim, nothing wider than the screen, no empty cells."""
    for table in visit("phone").locator("table.stack").all():
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


# ------------------------------------------------------------------ the game
@pytest.fixture
def playing(browser: Any) -> Iterator[Any]:
    """Return a function that opens the game of a scenario; at the end nothing may have gone wrong."""
    problems: list[str] = []
    with ExitStack() as stack:

        def begin(scenario: str, seconds: float = 0.0, **view: Any) -> tuple[Any, Any]:
            server = stack.enter_context(PlayServer(scenario, seconds=seconds))
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.shutdown)
            context = browser.new_context(**view)
            stack.callback(context.close)
            page = context.new_page()
            page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
            page.on("pageerror", lambda error: problems.append(str(error)))
            page.goto(server.address)
            return page, server

        yield begin
    assert not problems


@pytest.mark.parametrize(("size", "scheme"), [("desktop", "light"), ("phone", "dark")])
def test_a_day_is_played_with_the_keyboard(playing, size, scheme):
    width, height = SIZES[size]
    page, server = playing("campus-event", viewport={"width": width, "height": height}, color_scheme=scheme)
    page.locator("#words", has_text="points").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.locator("#price").focus()
    for step in range(1, server.game.model.horizon + 1):
        page.keyboard.press("ArrowRight" if step < 7 else "Shift")
        page.keyboard.press("Enter")
        page.locator("#when", has_text=f"step {step} of").wait_for()
    assert page.locator("#words").inner_text() == server.game.words()
    assert page.locator("#you").inner_text() == f"{server.game.score:.1f}" != "0.0"
    assert page.locator("#optimum").inner_text() == "100.0" and page.locator("#go").is_disabled()
    assert page.evaluate(CONTRAST)[0] >= 4.5
    page.get_by_role("button", name="New day").click()
    page.locator("#when", has_text="step 0 of").wait_for()
    assert page.locator("#go").is_enabled()


def test_the_clock_sets_the_price(playing):
    page, server = playing("spot", seconds=0.2)
    page.locator("#when", has_text=re.compile(r"step ([3-9]|\d\d) of")).wait_for()
    assert server.game.prices[:2] == [0, 0]
