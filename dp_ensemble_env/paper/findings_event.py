"""The paper's claims on the demand-response event (Section VI-3, Fig. 7), judged on one data set."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dp_ensemble_env.paper.claims import (
    ABOUT_15,
    NAMES,
    SLIGHTLY,
    Finding,
    Verdict,
    judge_statement,
    judge_within,
    percent,
)
from dp_ensemble_env.paper.measures import KS
from dp_ensemble_env.paper.study import Study
from dp_ensemble_env.reporting.score import Outcome

NOISY = ("taylor", "digamma", "average-exact")


def event_findings(study: Study) -> Iterator[Finding]:
    """Judge what the paper says of the event, Fig. 7."""

    def outcome(name: str, k: float = 0.0) -> Outcome:
        return study.events[name, k]

    ad_hoc, standard = outcome("ad-hoc"), outcome("standard")
    planned = {f"{name}, k = {k:g}": o for (name, k), o in study.events.items() if k}
    cases = {name: o.curtailed_kwh > ad_hoc.curtailed_kwh for name, o in {"standard": standard, **planned}.items()}
    least = min(standard.curtailed_kwh, *(o.curtailed_kwh for o in planned.values()))
    found = judge_statement(cases)
    yield Finding(
        "ad-hoc",
        "every MDP policy extracts more capacity than the ad-hoc practice",
        "VI-3, Fig. 7",
        "more",
        f"least {least / 1e3:,.1f} MWh, ad-hoc {ad_hoc.curtailed_kwh / 1e3:,.1f} MWh, "
        f"{percent(study.shed_share)} of the event's energy",
        Verdict(found.word, f"{found.reason}; the size of the shed is ours, not the paper's: {_limit(study)}"),
    )
    less = {name: o.curtailed_kwh / standard.curtailed_kwh - 1 for name, o in planned.items()}
    yield Finding(
        "slightly-less",
        "private policies curtail slightly less than the standard one",
        "VI-3",
        "slightly less",
        f"{percent(min(less.values()), sign=True)} to {percent(max(less.values()), sign=True)}",
        judge_within(less, -SLIGHTLY, -1e-9, -1, "they curtail less"),
    )
    apart = {
        f"k = {k:g}": abs(outcome("digamma", k).curtailed_kwh - outcome("taylor", k).curtailed_kwh)
        / standard.curtailed_kwh
        for k in KS
    }
    yield Finding(
        "taylor-digamma",
        "Taylor and Digamma extract similar capacity",
        "VI-3",
        "similar",
        "apart by " + ", ".join(f"{percent(v)} ({n})" for n, v in apart.items()),
        judge_statement({name: value <= SLIGHTLY for name, value in apart.items()}),
    )
    cases, words = {}, []
    for k in KS:
        gaps = {m: standard.curtailed_kwh - outcome(m, k).curtailed_kwh for m in NOISY}
        cases[f"k = {k:g}"] = abs(gaps["average-exact"]) >= max(abs(gaps["taylor"]), abs(gaps["digamma"]))
        words.append(
            f"k = {k:g}: "
            + ", ".join(f"{NAMES[m]} {percent(-v / standard.curtailed_kwh, 2, sign=True)}" for m, v in gaps.items())
        )
    yield Finding(
        "least-deviation",
        "Taylor and Digamma deviate least from the standard response",
        "VI-3",
        "least",
        "; ".join(words),
        judge_statement(cases),
    )
    yield from _fifteen_percent(study)


def _limit(study: Study) -> str:
    """Say how strong a shed the claim stands."""
    if study.shed_limit == 0:
        return "at k = 50 even the smallest shed takes as much as one of the policies"
    if not np.isfinite(study.shed_limit):
        return "at k = 50 no shed of this kind takes as much as the policies"
    return f"at k = 50 the claim breaks at a shed {study.shed_limit:.2g} times as strong"


def _fifteen_percent(study: Study) -> Iterator[Finding]:
    """Judge that average value extracts about 15 % less at the peak, by three readings of it."""
    free = study.uncontrolled

    def shortfall(value: float, others: list[float]) -> float:
        return 1.0 - value / float(np.mean(others))

    def most(power: np.ndarray) -> float:
        return float((free - power).max())

    place = f"at {study.peak_clock}, the {study.peak_of}'s peak"
    titles = (
        "averaged policy, at the peak",
        "averaged policy, where it curtails most",
        "plan on one release, at the peak",
    )
    readings: tuple[dict[str, float], ...] = ({}, {}, {})
    errors: dict[str, float] = {}
    for k in KS:
        analytical = [study.events[m, k].power_kw for m in ("taylor", "digamma")]
        average = study.events["average-exact", k].power_kw
        peaks = [study.at_peak(power) for power in analytical]
        name = f"k = {k:g}"
        readings[0][name] = shortfall(study.at_peak(average), peaks)
        readings[1][name] = shortfall(most(average), [most(power) for power in analytical])
        readings[2][name] = shortfall(study.released[k][1], peaks)
        errors[name] = study.released[k][2] / abs(float(np.mean(peaks)))
    for number, (title, values) in enumerate(zip(titles, readings, strict=True), 1):
        sampled = errors if number == 3 else {}
        yield Finding(
            f"fifteen-{number}",
            "average value extracts about 15 % less at the peak than Taylor and Digamma",
            "VI-3",
            "15 % less",
            ("" if number == 2 else f"{place}: ")
            + ", ".join(
                f"{percent(abs(v))} {'less' if v > 0 else 'more'}"
                + (f" ± {percent(sampled[n])}" if n in sampled else "")
                + f" ({n})"
                for n, v in values.items()
            ),
            judge_within(values, *ABOUT_15, 1, "it extracts less", sampled),
            title,
        )
