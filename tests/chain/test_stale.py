"""Days on which a meter failed, and the holidays of the United States."""

from __future__ import annotations

import numpy as np

from dp_ensemble_env.chain.calendar import named_holidays, us_holidays
from dp_ensemble_env.chain.stale import stale_days

HOUR = np.timedelta64(3600, "s")
STAMPS = np.datetime64("2024-06-03T00:00:00") + np.arange(24 * 28) * HOUR


def load(seed=0):
    return np.random.default_rng(seed).uniform(80, 120, len(STAMPS))


def test_a_stuck_meter_and_an_outage_are_found_and_nothing_else():
    assert stale_days(STAMPS, load(), HOUR) == {}
    kw = load()
    kw[30:36] = 97.5  # six hours on 4 June
    kw[24 * 9 : 24 * 10] = 3.0 + np.random.default_rng(1).random(24)
    assert stale_days(STAMPS, kw, HOUR) == {"2024-06-04": "frozen", "2024-06-12": "outage"}
    kw[32] = np.nan  # a gap ends the run
    assert stale_days(STAMPS, kw, HOUR) == {"2024-06-12": "outage"}


def test_a_coarse_meter_is_not_stuck():
    night = np.arange(len(STAMPS)) % 24 < 8
    assert stale_days(STAMPS, np.where(night, 50.0, load()), HOUR) == {}


def test_federal_holidays():
    assert us_holidays(2018) == (
        *("2018-01-01", "2018-01-15", "2018-02-19", "2018-05-28", "2018-07-04"),
        *("2018-09-03", "2018-10-08", "2018-11-12", "2018-11-22", "2018-12-25"),
    )
    assert "2021-06-18" in us_holidays(2021) and "2021-07-05" in us_holidays(2021)  # observed on Friday and Monday
    written = named_holidays(("us", "2024-06-20"), STAMPS)
    assert {"2024-06-20", "2024-07-04", "2025-01-01"} <= set(written) and "us" not in written
    assert named_holidays(("2024-06-20",), STAMPS) == ("2024-06-20",)
