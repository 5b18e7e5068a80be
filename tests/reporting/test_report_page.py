"""The self-contained page."""

import json
import re
import unicodedata
from importlib import resources

import pytest

from dp_ensemble_env.reporting.charts import COLORS, Chart, Series
from dp_ensemble_env.reporting.page import MARKED, Cell, Page, anchor, definitions, link_terms
from dp_ensemble_env.reporting.plots import draw_chart


def test_page_parts_are_escaped(tmp_path):
    page = Page("p")
    page.items(["a < b `c < d`"])
    page.definitions([("<t>", "x & y")])
    page.table(("words", "<number>"), [(Cell("<head>", "<body>"), "1")])
    page.table(("claim", '"x"'), [("a", Cell("b", "c", ("<d>",))), ("e", Cell("", "–"))], stack=True)
    content = page.write(tmp_path / "p.html").read_text()
    for words in ("<li>a &lt; b <code>c &lt; d</code></li>", "<dt>&lt;t&gt;</dt><dd>x &amp; y</dd>"):
        assert words in content
    assert 'data-label="&quot;x&quot;"><strong>b</strong> c<ul><li>&lt;d&gt;</li></ul>' in content
    assert '<table class="stack">' in content and '<td class="wrap none">–</td>' in content
    assert "<strong>&lt;head&gt;</strong> &lt;body&gt;" in content and "&lt;number&gt;" in content
    assert '<th class="left"><button>words' in content and "<th><button>&lt;number" in content


def test_what_was_found_comes_first_and_contents_lead_everywhere(tmp_path):
    page, chart = Page("p"), Chart("</script><b>", "x", "y", [Series("a", [1, 2], [3, 4])])
    picture = draw_chart(chart, tmp_path / "a.png")
    page.takeaways(["The score is 5 %."], chart, picture)
    page.chart(chart, picture, "c")
    page.heading("Results")
    page.heading("Results")
    page.text("Another score, and a score again.")
    text = page.write(tmp_path / "p.html").read_text(encoding="utf-8")
    body = text.split("<main")[1]
    assert body.index("takeaways") < body.index("<figure") < body.index('id="results"')
    assert "5\u00a0%" in body
    links = re.findall(r'href="#([^"]*)"', text.split("<main")[0])
    assert links == ["content", "in-short", "results", "results-2", "words"]
    assert all(text.count(f'id="{name}"') == 1 for name in (*links, "term-score"))
    assert body.count('href="#term-score"') == 2  # once in each section
    assert page.write(tmp_path / "p.html").read_text(encoding="utf-8") == text
    # Both charts carry their data, which no text in it can end early, and their picture.
    assert text.count('<img class="plain"') == 2 and text.count("<script") == text.count("</script>") == 3
    specs = [json.loads(found) for found in re.findall(r'<script type="application/json">(.*?)</script>', text)]
    assert specs == [chart.spec()] * 2


def test_nothing_can_be_loaded_and_no_character_is_a_mistake(tmp_path):
    text = Page("p").write(tmp_path / "p.html").read_text(encoding="utf-8")
    assert '<meta charset="utf-8">' in text and {c for c in text if unicodedata.category(c) == "Cc"} == {"\n"}
    assert "default-src 'none'" in text
    addresses = set(re.findall(r"https?://[^\s\"']+", text))
    assert addresses == {"http://www.w3.org/2000/svg"}  # the name of a language, which is not an address to load


# ------------------------------------------------------------------ colours
def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_colours_have_the_contrast_of_wcag_aa(scheme):
    """4.5 for text on any ground it is set on, 3 for lines and for what shows the focus."""
    css = (resources.files("dp_ensemble_env.reporting") / "page.css").read_text(encoding="utf-8")
    found = dict(re.findall(r"--([a-z]+): (#[0-9a-f]{6})", css.split("(prefers-color-scheme: dark)")[scheme]))
    pairs = [(4.5, name, ground) for ground in ("paper", "soft") for name in ("ink", "muted", "link")]
    pairs += [(3.0, name, ground) for ground in ("paper", "window") for name in COLORS]
    for least, name, ground in [*pairs, (4.5, "ink", "window"), (3.0, "focus", "paper")]:
        low, high = sorted((luminance(found[name]), luminance(found[ground])))
        assert (high + 0.05) / (low + 0.05) >= least, (name, ground)


# ------------------------------------------------------------------ words of the glossary
def test_every_marked_word_is_in_the_glossary():
    assert set(MARKED.values()) <= set(definitions())
    assert all(
        "{term}" not in meaning and len(meaning) > 20 for meaning in definitions().values() if "See" not in meaning
    )


def test_words_are_linked_whole_and_where_wanted():
    linked = link_terms("Scores and ε at k = 5; a scoreboard, 300 K, policy-free.", lambda term: True)
    assert linked.count("<a ") == 3
    for word, term in (("Scores", "score"), ("ε", "epsilon"), ("k", "concentration")):
        assert f'<a class="term" href="#{anchor(term)}">{word}</a>' in linked
    assert link_terms("score", lambda term: False) == "score"
