"""The self-contained page."""

import unicodedata

from dp_ensemble_env.reporting.page import Cell, Page


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


def test_wide_tables_point_to_the_right_and_no_character_is_a_mistake(tmp_path):
    page = Page("p")
    page.table(("a",), [("1",)])
    text = page.write(tmp_path / "p.html").read_text(encoding="utf-8")
    assert 'content: "this table scrolls sideways →"' in text and '<meta charset="utf-8">' in text
    assert {c for c in text if unicodedata.category(c) == "Cc"} == {"\n"}
