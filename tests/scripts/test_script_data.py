"""The sample files: where they lie, what they hold, and that they can be made again."""

from __future__ import annotations

import data
import pytest

from dp_ensemble_env import samples


def test_the_files_are_those_that_the_script_makes(tmp_path):
    data.write_samples(tmp_path)
    assert samples.names() == ("building.xml", "fleet.csv")
    for name in samples.names():
        assert (tmp_path / name).read_bytes() == samples.path(name).read_bytes()
        assert samples.path(name).stat().st_size < 250_000


def test_other_names_are_refused():
    with pytest.raises(ValueError, match=r"there is no sample 'tower.csv'; the samples are building.xml, fleet.csv"):
        samples.path("tower.csv")
