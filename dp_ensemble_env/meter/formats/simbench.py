"""Standard load profiles from the installed SimBench package."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from dp_ensemble_env.meter.clean import make_series
from dp_ensemble_env.meter.clocks import get_zone
from dp_ensemble_env.meter.formats.text import TextFile, find_table, parse_numbers, take_columns
from dp_ensemble_env.meter.origin import Origin, Readings, name_list
from dp_ensemble_env.meter.series import PowerSeries
from dp_ensemble_env.meter.settings import ReadSettings
from dp_ensemble_env.meter.stamps import parse_stamps
from dp_ensemble_env.tools.validation import check_positive

_FILE = "networks/1-complete_data-mixed-all-0-sw/LoadProfile.csv"
_SUFFIX = "_pload"


def simbench_profile(name: str = "G0-A", peak_kw: float = 1000.0) -> PowerSeries:
    """Return a year of a SimBench standard load profile (2016, 15 minutes).

    The profiles are per unit of their peak; they are multiplied by `peak_kw`.
    Needs ``pip install simbench``; the package is only located,
    not imported.

    Parameters
    ----------
    name : str
        A profile such as ``"G0-A"`` (commerce in general), ``"G1-A"`` (on
        weekdays), ``"G4-A"`` (shops) or ``"H0-A"`` (household).
    peak_kw : float
        Power in kW that stands for one per unit.

    Returns
    -------
    PowerSeries
        Times are the wall clock of Germany.

    References
    ----------
    S. Meinecke et al., "SimBench—A Benchmark Dataset of Electric Power
    Systems", Energies 13(12), 2020. Data under the ODbL licence.
    """
    peak = check_positive(peak_kw, "peak_kw")
    path = _find()
    origin = Origin(f"simbench/{path.name}")
    table = find_table(TextFile(path, origin, ReadSettings()))
    place = table.index(f"{name}{_SUFFIX}".lower())
    if place is None:
        known = sorted(h.removesuffix(_SUFFIX) for h in table.header if h.endswith(_SUFFIX) and h.startswith("G"))
        raise ValueError(f"SimBench has no load profile {name!r}; choose one of {name_list(known)}.")
    chunks = list(take_columns(table, [table.stamps[0], place]))
    lines = np.concatenate([numbers for _, numbers in chunks])
    parsed = parse_stamps([cell for columns, _ in chunks for cell in columns[0]], lines, origin, "dmy")
    cells = [cell for columns, _ in chunks for cell in columns[1]]
    values = parse_numbers(cells, lines, origin, ".", table.header[place])[:, None] * peak
    readings = Readings(
        origin,
        parsed.seconds,
        np.ascontiguousarray(values),
        [name],
        lines,
        "kW",
        "start",
        get_zone("Europe/Berlin"),
        notes=[f"SimBench profile {name}, per unit, was multiplied by {peak:g} kW."],
    )
    return make_series(readings, ReadSettings(spikes="keep"))


def _find() -> Path:
    try:
        spec = find_spec("simbench")
    except (ImportError, ValueError):
        spec = None
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / _FILE
        if path.is_file():
            return path
    problem = "SimBench is not installed" if spec is None else "the installed SimBench holds no load profiles"
    raise ImportError(f"{problem}; pip install simbench.")
