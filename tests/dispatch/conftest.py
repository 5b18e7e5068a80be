"""The sample fleet on one day."""

from __future__ import annotations

import pytest

from dp_ensemble_env import samples
from dp_ensemble_env.dispatch.participants import participants
from dp_ensemble_env.dispatch.plan import make_plan
from dp_ensemble_env.scenarios.metered import metered_day
from dp_ensemble_env.scenarios.problem import ProblemSettings


@pytest.fixture(scope="session")
def fleet():
    return ProblemSettings(meter=str(samples.path("fleet.csv")), date="2018-08-15")


@pytest.fixture(scope="session")
def days(fleet):
    return {
        name: metered_day(series, event, own.day_settings())
        for name, series, event, own in participants(fleet).used[:4]
    }


@pytest.fixture(scope="session")
def plan(days):
    return make_plan(days)
