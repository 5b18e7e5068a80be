"""Programmes are data: what they pay by hand, and one more without code."""

from __future__ import annotations

import pytest
from helpers import refuses

from dp_ensemble_env.dispatch.settle import Programme, programme


def test_payment_by_hand():
    terms = programme("csrp")
    assert (terms.reservation, terms.energy, terms.days, terms.best, terms.adjusted) == (18.0, 1.0, 10, 5, False)
    # 100 kW contracted, 60 kW delivered over four hours: 18 * 60 + 60 * 4.
    assert terms.payment(60.0, 100.0, 4.0) == pytest.approx(1320.0)
    assert terms.payment(150.0, 100.0, 4.0) == pytest.approx(18 * 100 + 600)
    assert terms.payment(-20.0, 100.0, 4.0) == 0.0
    assert terms.performance_factor(30.0, 0.0) == 1.0
    assert programme("dlrp").name == "DLRP"


def test_another_programme_is_a_file(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('[mine]\nenergy = 0.25\ndays = 3\nbest = 3\nmissing = "nothing"\n')
    terms = programme(str(file))
    assert (terms.name, terms.energy, terms.reservation, terms.days) == ("mine", 0.25, 0.0, 3)
    file.write_text("[mine]\nenergi = 0.25\n")
    refuses("unknown term of the programme .* 'energi' .did you mean 'energy'", programme, str(file))
    file.write_text("[a]\n[b]\n")
    refuses("the table of one programme", programme, str(file))
    refuses("unknown programme 'csp'", programme, "csp")
    refuses("reservation", Programme, name="x", reservation=-1.0)
    refuses("adjust_from", Programme, name="x", adjust_from=1.0, adjust_until=2.0)
