"""Cards for notebooks."""

import re

from dp_ensemble_env.tools.html import card


def test_cards_escape_and_set_no_colour():
    text = card("<b>", [("a & b", '"1" < 2')])
    assert "&lt;b&gt;" in text and "a &amp; b" in text and "&quot;1&quot; &lt; 2" in text
    assert not re.search(r"#[0-9a-f]{3}|rgb", text)
