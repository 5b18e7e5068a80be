"""The sample files: where they lie, what they hold, and that they can be made again."""

from __future__ import annotations

import data
import numpy as np
import pytest

from dp_ensemble_env import samples
from dp_ensemble_env.meter import meter_columns, read_meter


def test_the_files_are_those_that_the_script_makes(tmp_path):
    data.write_samples(tmp_path)
    assert samples.names() == ("building.xml", "fleet.csv")
    for name in samples.names():
        assert (tmp_path / name).read_bytes() == samples.path(name).read_bytes()
        assert samples.path(name).stat().st_size < 250_000


def test_what_they_hold():
    times, found = data.simulate()
    columns = meter_columns(samples.path("fleet.csv"))
    assert columns == [f"{name}_kW" for name in found] and len(columns) == 12
    tower = read_meter(samples.path("fleet.csv"), column="tower_kW")
    np.testing.assert_allclose(tower.kw, found["tower"], atol=0.051)
    np.testing.assert_array_equal(tower.times, times)
    building = read_meter(samples.path("building.xml"), timezone="America/New_York")
    assert building.times[0] == np.datetime64("2018-06-01") and building.missing == 0
    np.testing.assert_allclose(building.kw, found["library"][: len(building.kw)], atol=0.001)


def test_other_names_are_refused():
    with pytest.raises(ValueError, match=r"there is no sample 'tower.csv'; the samples are building.xml, fleet.csv"):
        samples.path("tower.csv")
