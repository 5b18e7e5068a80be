"""The page on people says what the study computed."""

import json
import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
ROWS = {
    "tilt with foresight, money": "the paper's tilt: with foresight, price in money",
    "tilt with foresight, label": 'the same, by the label "high" or "low" alone',
    "constant elasticity": "constant elasticity",
    "constant per cent": "constant per cent",
    "tilt without foresight, label": "**tilt without foresight, label**",
    "eight parameters": "high and low at four times of day",
}


def test_the_page_says_what_was_computed():
    figures, page = json.loads((DOCS / "people.json").read_text()), (DOCS / "people.md").read_text(encoding="utf-8")
    text = " ".join(page.replace("−", "-").split())
    assert set(ROWS) == set(figures["skill"])
    for key, row in ROWS.items():
        cells = next(line for line in page.replace("−", "-").splitlines() if line.startswith(f"| {row} |")).split("|")
        for part, cell in (("skill", cells[3]), ("gain without foresight", cells[4])):
            said = [float(number) for number in re.findall(r"-?\d\.\d+", cell)]
            computed = figures[part].get(key, [])
            assert len(said) == len(computed)
            assert all(abs(a - b) <= 0.0051 for a, b in zip(said, computed, strict=True)), (key, part)
    assert f"There are {figures['episodes']} episodes" in text
    for price, unit in (("high", "£{:.1f} per nat [{:.1f}, {:.1f}]"), ("low", "£{:.1f} [{:.1f}, {:.1f}]")):
        assert unit.format(*figures[price]["pounds per nat"]) in text
        mean, low, high = (100 * value for value in figures[price]["response"])
        assert f"{mean:+.1f} % [{low:.1f}, {high:.1f}]" in text
        low, high = (100 * value for value in figures[price]["hour before, observed"][1:])
        assert f"{100 * figures[price]['hour before, observed'][0]:+.1f} % [{low:.1f}, {high:.1f}]" in text
        assert f"predicts {100 * figures[price]['hour before, tilt with foresight, label'][0]:+.1f} %" in text
