"""Write the data files of the package: ``python scripts/data.py samples``, ``signals [NAME ...]``, ``probes NAME ...``.

samples
    meter files in ``dp_ensemble_env/samples``, simulated from fixed seeds. The twelve participants are the synthetic
    campus building in twelve sizes, each with an activity of its own every day and noise of its own; some hardly know
    weekends, one works by night.
signals
    directions and units of the default action mode, from eight instances of each scenario that nobody plays, in
    ``dp_ensemble_env/envs/signals.json``: of all scenarios, or of the named ones, when one is added or gets a new
    version.
probes
    scores of simple controllers on the first three training instances of the named scenarios, in
    ``dp_ensemble_env/scenarios/probes.json``; then run ``make scenario-pages``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env import samples, scenarios
from dp_ensemble_env.chain import resample
from dp_ensemble_env.envs import signals
from dp_ensemble_env.experiments import probes
from dp_ensemble_env.scenarios.campus import campus_building
from dp_ensemble_env.tools.console import Progress

HOUR = np.timedelta64(3600, "s")
#: Name, size relative to the campus building, spread of the daily activity, and kind.
PARTICIPANTS = (
    ("library", 0.9, 0.06, "office"),
    ("chemistry", 1.6, 0.04, "laboratory"),
    ("town_hall", 0.5, 0.07, "office"),
    ("clinic", 1.2, 0.03, "always"),
    ("school", 0.35, 0.10, "office"),
    ("court", 0.6, 0.06, "office"),
    ("bakery", 0.15, 0.08, "night"),
    ("theatre", 0.3, 0.12, "always"),
    ("bank", 0.8, 0.05, "office"),
    ("archive", 0.2, 0.04, "laboratory"),
    ("museum", 0.7, 0.07, "always"),
    ("tower", 4.0, 0.05, "office"),
)


def simulate() -> tuple[NDArray[np.datetime64], dict[str, NDArray[np.float64]]]:
    """Return the hours of the summer of 2018, and the power of every participant in kW."""
    year = campus_building(3)
    times, campus, _ = resample(year.times, year.kw, year.step, HOUR)
    chosen = (times >= np.datetime64("2018-06-01")) & (times < np.datetime64("2018-09-01"))
    times, campus = times[chosen], campus[chosen]
    days = len(times) // 24
    series = {}
    for number, (name, size, spread, kind) in enumerate(PARTICIPANTS):
        rng = np.random.default_rng([2018, number])
        shape = {
            "office": campus,
            "laboratory": 0.7 * campus.max() + 0.3 * campus,
            "always": np.tile(campus.reshape(days, 24)[4:5].ravel(), days) * 0.6 + 0.4 * campus,
            "night": np.roll(campus, 12),
        }[kind]
        activity = np.repeat(1.0 + spread * rng.standard_normal(days), 24)
        noise = np.zeros(len(times))
        shocks = rng.standard_normal(len(times))
        for i in range(1, len(times)):
            noise[i] = 0.6 * noise[i - 1] + 0.015 * shocks[i]
        series[name] = np.maximum(size * shape * activity * (1.0 + noise), 1.0)
    return times, series


def write_fleet(path: Path) -> Path:
    """Write the wide CSV file."""
    times, series = simulate()
    lines = [["interval start", *(f"{name}_kW" for name in series)]]
    for stamp, row in zip(times, np.column_stack(list(series.values())), strict=True):
        lines.append([str(stamp).replace("T", " ")[:16], *(f"{value:.1f}" for value in row)])
    path.write_text("".join(f"{','.join(line)}\n" for line in lines), encoding="utf-8")
    return path


def write_building(path: Path) -> Path:
    """Write the Green Button file: hourly energy in Wh, stamps in UTC, the clock of New York in summer."""
    times, series = simulate()
    chosen = times < np.datetime64("2018-07-21")
    start = times[chosen].astype("int64") + 4 * 3600  # four hours behind UTC in summer
    energy = np.round(series["library"][chosen] * 1000.0).astype(int)
    readings = "".join(
        f"<IntervalReading><timePeriod><duration>3600</duration><start>{begin}</start></timePeriod>"
        f"<value>{value}</value></IntervalReading>\n"
        for begin, value in zip(start, energy, strict=True)
    )
    home = "/espi/1_1/resource/UsagePoint/01"
    parts = (
        ("UsagePoint/01", f"{home}", '<UsagePoint xmlns="http://naesb.org/espi"><ServiceCategory><kind>0</kind>'
         "</ServiceCategory></UsagePoint>"),
        ("LocalTimeParameters/01", "/espi/1_1/resource/LocalTimeParameters/01",
         '<LocalTimeParameters xmlns="http://naesb.org/espi"><dstEndRule>B40E2000</dstEndRule><dstOffset>3600'
         "</dstOffset><dstStartRule>360E2000</dstStartRule><tzOffset>-18000</tzOffset></LocalTimeParameters>"),
        ("MeterReading/01", f"{home}/MeterReading/01", '<MeterReading xmlns="http://naesb.org/espi"/>'),
        ("ReadingType/01", "/espi/1_1/resource/ReadingType/01",
         '<ReadingType xmlns="http://naesb.org/espi"><accumulationBehaviour>4</accumulationBehaviour>'
         "<commodity>1</commodity><flowDirection>1</flowDirection><intervalLength>3600</intervalLength>"
         "<powerOfTenMultiplier>0</powerOfTenMultiplier><uom>72</uom></ReadingType>"),
        ("IntervalBlock/01", f"{home}/MeterReading/01/IntervalBlock/01",
         f'<IntervalBlock xmlns="http://naesb.org/espi"><interval><duration>{3600 * len(start)}</duration>'
         f"<start>{start[0]}</start></interval>\n{readings}</IntervalBlock>"),
    )  # fmt: skip
    related = {"UsagePoint/01": f"{home}/MeterReading", "MeterReading/01": "/espi/1_1/resource/ReadingType/01"}
    entries = ""
    for title, href, content in parts:
        more = f'<link rel="related" href="{related[title]}"/>' if title in related else ""
        if title == "UsagePoint/01":
            more += '<link rel="related" href="/espi/1_1/resource/LocalTimeParameters/01"/>'
        if title == "MeterReading/01":
            more += f'<link rel="related" href="{home}/MeterReading/01/IntervalBlock"/>'
        entries += (
            f'<entry><id>urn:sample:{title}</id><link rel="self" href="{href}"/>{more}<title>{title}</title>'
            f"<content>{content}</content></entry>\n"
        )
    text = (
        '<?xml version="1.0" encoding="UTF-8"?>\n<feed xmlns="http://www.w3.org/2005/Atom">\n<id>urn:sample</id>'
        f"<title>Synthetic sample, no meter was read</title>\n{entries}</feed>\n"
    )
    path.write_text(text, encoding="utf-8")
    return path


def write_samples(folder: Path) -> None:
    """Write both sample files."""
    write_fleet(folder / "fleet.csv")
    write_building(folder / "building.xml")


def write_signals(names: list[str]) -> None:
    """Compute the signals of the named scenarios, by default of all built-in ones, and write the file."""
    content = json.loads(signals.RECORD.read_text(encoding="utf-8"))
    for name in names or scenarios.BUILT_IN:
        content[name] = signals.entry_of(name)
        print(f"{name}: {len(content[name]['directions'])} signals, digest {content[name]['digest']}")
    lines = [f"{json.dumps(name)}: {json.dumps(content[name], separators=(',', ':'))}" for name in content]
    signals.RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def write_probes(names: list[str]) -> None:
    """Compute and record the probes of scenarios; the worth of memories is shown for the first instance."""
    for name in names:
        instances = []
        for instance in range(3):
            with Progress(f"{name} {instance}") as monitor:
                memories = instance == 0 and bool(scenarios.memories(name))
                model = scenarios.make(name, instance=instance)
                instances.append(probes.probe(model, monitor=monitor, memories=memories))
        probes.record({name: instances})


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["samples"]:
            write_samples(samples.path("fleet.csv").parent)
        case ["signals", *names]:
            write_signals(names)
        case ["probes", _, *_]:
            write_probes(sys.argv[2:])
        case _:
            sys.exit(__doc__)
