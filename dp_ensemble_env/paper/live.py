"""What of the reproduction moves on its page: the cost of privacy and the load of the event against k."""

from __future__ import annotations

from typing import Any

from dp_ensemble_env.paper.claims import Finding, failing, tally
from dp_ensemble_env.paper.data import THEORY
from dp_ensemble_env.paper.measures import DELTA, LEADING, ONE, WORST
from dp_ensemble_env.paper.study import Study
from dp_ensemble_env.reporting.charts import Chart, Explorer, Series, Stop, power_chart
from dp_ensemble_env.reporting.plots import hours

#: Policies that expect the noise: name, colour and dash.
AWARE = {
    "taylor": ("Taylor", "orange", "6 4"),
    "digamma": ("Digamma", "pink", "3 3"),
    "average-exact": ("average value", "green", ""),
}
#: File names of the plain pictures.
COST, LOAD = "live_cost", "live_load"
CAPTIONS = (
    "The exact loss against the optimum, in dollars per building, for each k.",
    "The event under the policies that expect this k, beside the optimum and today's practice.",
)


def explore(study: Study) -> Explorer:
    """Return the slider over k with its two figures."""
    ks = [float(k) for k in study.effort.ks]
    cost = [
        Series(title, ks, study.cost[name], color=color, dash=dash, dots=True)
        for name, (title, color, dash) in AWARE.items()
    ]
    cost.append(Series("plan on one release", ks, study.cost[ONE], color="blue", dots=True))
    leading: dict[str, Any] = {"color": "black", "dash": "2 3", "shown": False}
    cost.append(Series("Corollary 3, corrected", ks, study.cost[LEADING], **leading))
    label = "concentration k (larger: less noise)"
    about: dict[str, Any] = {"log_x": True, "log_y": True, "x_name": "k =", "x_ticks": [(k, f"{k:g}") for k in ks]}
    frontier = Chart("Cost of privacy", label, "dollars per building", cost, **about)
    load = power_chart(study.data.model, f"The event, {study.data.title}", _lines(study))
    stops = [_stop(study, number) for number in range(len(ks))]
    return Explorer("Concentration k of the releases", frontier, load, stops, ks.index(50.0) if 50.0 in ks else 0)


def _lines(study: Study) -> list[Series]:
    clock = hours(study.data.model).tolist()
    fixed = {
        "uncontrolled": ("uncontrolled", "red", ""),
        "ad-hoc": ("ad-hoc practice", "black", "8 3 2 3"),
        "standard": ("standard (optimum)", "blue", ""),
    }
    lines = [
        Series(title, clock, (study.events[name, 0.0].power_kw / 1e3).tolist(), color=color, dash=dash)
        for name, (title, color, dash) in fixed.items()
    ]
    for name, (title, color, dash) in AWARE.items():
        lines.append(Series(title, clock, (study.power[name][0] / 1e3).tolist(), color=color, dash=dash))
    if study.learned:
        best = study.learned[0]
        look: dict[str, Any] = {"color": "sky", "dash": "2 3", "shown": False}
        lines.append(Series(f"learned: {best.name}", clock, (best.outcome.power_kw / 1e3).tolist(), **look))
    return lines


def _stop(study: Study, number: int) -> Stop:
    k = study.effort.ks[number]
    losses = ", ".join(f"{title} ${study.cost[name][number]:,.2f}" for name, (title, _, _) in AWARE.items())
    says = f"k = {k:g}. Lost per building: {losses}; a plan on one release ${study.cost[ONE][number]:,.2f}."
    if study.row is not None:
        says += f" One release of one row spends ε = {study.epsilon[WORST][number]:.3g} at δ = {DELTA:g}."
    curves = {title: (study.power[name][number] / 1e3).tolist() for name, (title, _, _) in AWARE.items()}
    return Stop(float(k), f"k = {k:g}", says, curves)


def takeaways(studies: list[Study], findings: dict[str, list[Finding]]) -> list[str]:
    """Say what holds and what does not, computed from the verdicts."""
    sentences = []
    for data, mine in findings.items():
        where = "Claims that need no meter data" if data == THEORY else f"Claims on the {data}"
        sentences.append(f"{where}: {tally(mine)}.")
    if failures := failing(findings):
        sentences.append(f"{len(failures)} claims fail on every data set that speaks to them; they are listed below.")
    for study in studies:
        best, event = study.events["standard", 0.0].curtailed_kwh, study.events
        shares = [event[name, 50.0].curtailed_kwh / best for name in AWARE]
        sentences.append(
            f"On the {study.data.title}, policies that expect noise of k = 50 shed {100 * min(shares):.0f} to "
            f"{100 * max(shares):.0f} % of the energy that the optimum sheds; the ad-hoc practice sheds "
            f"{100 * event['ad-hoc', 0.0].curtailed_kwh / best:.0f} %."
        )
    return sentences
