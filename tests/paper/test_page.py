"""The case study as a folder: everything is in it, and what cannot be computed is refused before the work."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace

import numpy as np
import pytest

from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.paper import figures, measures
from dp_ensemble_env.paper import page as pages
from dp_ensemble_env.paper.claims import judge_claims
from dp_ensemble_env.paper.data import METER, DataSet
from dp_ensemble_env.paper.figures import draw_all
from dp_ensemble_env.paper.measures import RatioSearch
from dp_ensemble_env.paper.page import reproduce
from dp_ensemble_env.paper.study import run_study, study_tables
from dp_ensemble_env.paper.verdicts import NOT_REPRODUCIBLE, VERDICTS
from dp_ensemble_env.reporting.tables import spreadsheet_safe


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory, study):
    """The small study, once as the campus and once as a meter's."""
    folder, data = tmp_path_factory.mktemp("reproduce"), study.data
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "DPI", 40)
        patch.setattr(pages, "draw_all", lambda study, at: draw_all(study, at) if study.data is data else {})
        patch.setattr(pages, "run_study", lambda data, *_: replace(study, data=data))
        patch.setattr(pages, "search_ratio", lambda: RatioSearch(3.5, (1.0, 2.0), 1))
        meter = replace(data, slug=METER, title="meter", provenance="File meter.csv")
        reproduce(folder, [data, meter], quick=True, command="reproduce --quick")
    return folder


def test_one_folder_with_everything(reproduced):
    record = json.loads((reproduced / "reproduction-private.json").read_text())
    assert set(record["data"]) == {"synthetic campus", "meter"}
    assert set(record["tally"]) <= set(VERDICTS) and sum(record["tally"].values()) == 26
    with (reproduced / "claims-private.csv").open() as stream:
        claims = list(csv.DictReader(stream))
    assert claims == [{key: spreadsheet_safe(str(value)) for key, value in claim.items()} for claim in record["claims"]]
    assert {claim["verdict"] for claim in claims} <= set(VERDICTS)
    assert {claim["data"] for claim in claims} == {"without data", "synthetic campus", "meter"}
    drawn = list((reproduced / "campus").glob("*.png"))
    assert len(drawn) == 6 and all("<svg" in path.with_suffix(".svg").read_text()[:2000] for path in drawn)
    for slug, title in (("campus", "synthetic campus"), ("meter-private", "meter")):
        for name, records in record["data"][title]["tables"].items():
            with (reproduced / slug / f"{name}.csv").open() as stream:
                rows = list(csv.DictReader(stream))
            assert len(rows) == len(records) > 0 and list(rows[0]) == list(records[0])
            value = list(records[-1].values())[-1]
            assert float(list(rows[-1].values())[-1]) == pytest.approx(value)


def test_page_is_self_contained_and_says_how_it_was_made(reproduced):
    page = (reproduced / "reproduction-private.html").read_text()
    assert page.count("data:image/png;base64,") == 7
    assert not re.search(r"(src|href)=\"(?!data:|#)", page)  # nothing is fetched
    opening = page.split("<main")[1].split("About this page")[0]
    assert "policies</a> that expect noise of " in opening and '<figure class="chart">' in opening
    for words in ("quick run", "reproduce --quick", "Seed 0", f"numpy {np.__version__}", "no meter was read", "E13"):
        assert words in page, words
    assert "transitions come back as whole numbers, all of them right" in page
    learned = re.search(r"trained for this page[^<]*Z-learning ([0-9.]+) after 2,000 steps", page)
    assert learned and 50 < float(learned[1]) < 100


@pytest.mark.slow
def test_no_row_qualifies(tmp_path, small, monkeypatch):
    """Two successors everywhere: the row's figures and claims are left out, the rest is there."""
    monkeypatch.setattr(measures, "learners", lambda *arguments: [])
    n = 6
    default = 0.6 * np.eye(n) + 0.4 * np.roll(np.eye(n), 1, axis=1)
    model = EnsembleModel(default, np.arange(1.0, n + 1), -np.outer(np.ones(5), np.arange(1.0, n + 1)), 2.0)
    times = np.datetime64("2018-07-01T00:00:00") + 900 * np.arange(96)
    flat = np.full(96, 5.0)
    none = run_study(DataSet("none", "none", "made up", model, times, flat, flat, None), small, 0, lambda words: None)
    found = {f.claim.id: f.verdict.word for f in judge_claims(none, RatioSearch(3.5, (1.0, 2.0), 1))}
    assert none.row is None and found["row"] == NOT_REPRODUCIBLE and not any(name.startswith("L1") for name in found)
    assert found["states"] == NOT_REPRODUCIBLE and "greater-cost" in found
    assert list(draw_all(none, tmp_path)) == ["Figure 3", "Figure 7", "Figure 8"]
    assert {table.name for table in study_tables(none)} == {"event", "cost", "misprint_e2", "misprint_e3"}
