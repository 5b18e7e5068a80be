"""Private plans: nothing but the release, the size and the number of participants decides a number."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from helpers import refuses

from dp_ensemble_env.cli import main
from dp_ensemble_env.dispatch.participants import participants
from dp_ensemble_env.dispatch.private import PrivateSettings, private_plan
from dp_ensemble_env.dispatch.report import as_dict
from dp_ensemble_env.privacy import PrivacyLedger

PUBLIC = PrivateSettings("public", 300.0, seed=0)


@pytest.fixture(scope="module")
def known(fleet):
    return participants(fleet).used


def test_with_the_same_release_other_data_change_nothing(known, monkeypatch):
    settings = PrivateSettings("gaussian:epsilon=1000", 300.0)
    kept = []
    draw = PrivacyLedger.release

    def remembered(self, *args, **terms):
        kept.append(draw(self, *args, **terms))
        return kept[0]

    monkeypatch.setattr(PrivacyLedger, "release", remembered)
    plan = private_plan(known, 0.15, settings)
    other = [one._replace(series=replace(one.series, kw=one.series.kw[::-1] / 2, gaps=None)) for one in known]
    assert as_dict(private_plan(other, 0.15, settings)) == as_dict(plan)
    assert len(kept) == 2 and not np.allclose(kept[0].matrix, kept[1].matrix)
    seen = private_plan(other, 0.15, replace(settings, show_true=True))
    assert any("not covered by ε" in note for note in seen.notes[""])
    assert not any("true" in note for note in plan.notes[""])


def test_the_noise_is_fresh_unless_a_seed_is_given(known):
    gaussian = PrivateSettings("gaussian:epsilon=1000", 300.0)
    one, two = (private_plan(known, 0.15, gaussian).total.forecast for _ in range(2))
    assert not np.allclose(one, two)
    seeded = replace(gaussian, seed=3)
    one, two = (private_plan(known, 0.15, seeded) for _ in range(2))
    np.testing.assert_array_equal(one.total.forecast, two.total.forecast)
    assert "differential privacy" in one.revealed[0] and "Protects everything that one participant" in one.revealed[0]


def test_numbers_are_those_of_a_load_that_behaves_as_released(known):
    plan = private_plan(known, 0.15, PUBLIC)
    each, total = plan.participants[0], plan.total
    assert each.shed_kwh / each.energy(each.forecast) == pytest.approx(0.15, rel=1e-3)
    assert total.shed_kwh == pytest.approx(len(known) * each.shed_kwh)
    assert total.error_kwh == pytest.approx(np.sqrt(len(known)) * each.error_kwh)
    # Planned on the public guess, the plan is that without data.
    ours, without = re.findall(r"[\d.]+(?= of 100|\.$)", plan.notes[""][1])
    assert ours == without and "says no more than the public guess" in plan.notes[""][0]
    few = private_plan(known[:1], 0.15, PrivateSettings("gaussian:epsilon=4", 300.0))
    assert few.notes[""] == plan.notes[""]  # one participant cannot be told from none


def test_the_readings_decide_nothing_else(fleet, tmp_path, capsys):
    words = ["plan", "--meter", fleet.meter, "--date", fleet.date, "--privacy", "gaussian:epsilon=4"]
    words += ["--output", str(tmp_path)]
    assert main(words) == 2 and "give --size KW" in capsys.readouterr().err
    for option in (["--shed", "9"], ["--day-ahead"], ["--loads", "2"]):
        assert main([*words, "--size", "300", *option]) == 2
        assert "is computed from the release alone" in capsys.readouterr().err
    silent = replace(fleet, meter=str(tmp_path / "dead.csv"))
    times = np.arange(np.datetime64("2018-05-01T00"), np.datetime64("2018-09-01T00"))
    (tmp_path / "dead.csv").write_text("\n".join(["interval start,kW", *(f"{time}:00,0.0" for time in times)]))
    assert len(participants(silent, dead=True).used) == 1
    refuses("zero or nothing", participants, silent)


def test_what_does_not_protect_participants_is_refused(known):
    settings = PrivateSettings("dirichlet:k=50,floor=0.05", 300.0)
    refuses("does not protect participants", private_plan, known, 0.15, settings)
