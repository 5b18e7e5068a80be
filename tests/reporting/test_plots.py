"""Pictures look alike in every session, and leave the session as it was."""

import subprocess
import sys

import matplotlib
from matplotlib import pyplot as plt

from dp_ensemble_env.reporting import plots


def test_importing_changes_nothing_of_matplotlib():
    code = (
        "import matplotlib; matplotlib.use('svg'); before = dict(matplotlib.rcParams)\n"
        "import dp_ensemble_env.paper.figures, sys\n"
        "assert dict(matplotlib.rcParams) == before and 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_drawing_leaves_no_trace_and_does_not_depend_on_the_session(tmp_path):
    plain = plots.plot_regrets([], tmp_path / "plain.png").read_bytes()
    with matplotlib.style.context("dark_background"):
        before, backend = dict(matplotlib.rcParams), matplotlib.get_backend()
        dark = plots.plot_regrets([], tmp_path / "dark.png").read_bytes()
        assert dict(matplotlib.rcParams) == before and matplotlib.get_backend() == backend
    assert dark == plain and not plt.get_fignums()


def test_settings_hold_inside_the_context_only(tmp_path):
    outside = matplotlib.rcParams["legend.frameon"]
    with plots.look({"font.size": 7}):
        assert matplotlib.rcParams["font.size"] == 7 and matplotlib.rcParams["legend.frameon"] is False
        figure, _ = plots.subplots(2, 1, figsize=(2.0, 1.0), height_ratios=(1, 2))
        path = plots.save(figure, tmp_path / "a.png", vector=True, dpi=100)
    assert matplotlib.rcParams["legend.frameon"] == outside
    assert plt.imread(path).shape[:2] == (100, 200) and figure.get_constrained_layout()
    assert path.with_suffix(".svg").read_text().count("<svg") == 1
