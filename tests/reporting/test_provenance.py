"""What a result was made with."""

import platform

import numpy as np

from dp_ensemble_env import __version__
from dp_ensemble_env.reporting.provenance import versions


def test_versions_are_those_of_this_session():
    found = versions()
    assert found["python"] == platform.python_version() and found["dp_ensemble_env"] == __version__
    assert found["numpy"] == np.__version__ and found["machine"] == f"{platform.system()} {platform.machine()}"
    found.clear()
    assert versions()  # nobody can spoil it for others
