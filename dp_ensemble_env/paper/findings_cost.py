"""The paper's claims on cost of privacy and privacy of policies (Sections V, VI-3, Fig. 8), judged on one data set."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dp_ensemble_env.paper.claims import (
    NAMES,
    RECOVERED,
    REPRODUCED,
    SLIGHTLY_DEARER,
    Finding,
    Verdict,
    differs,
    falling,
    judge_as_private,
    judge_private,
    judge_statement,
    judge_within,
    rising,
)
from dp_ensemble_env.paper.measures import KS, LEADING, ONE, ONE_STEP, PRINTED
from dp_ensemble_env.paper.releases import DRAWS
from dp_ensemble_env.paper.study import Study

#: Ends the names of the costs by the paper's own formulas.
FORMULA = ", paper's formula"


def cost_findings(study: Study) -> Iterator[Finding]:
    """Judge what the paper says of the cost of privacy, Fig. 8."""
    yield from _digamma_dearer(study)
    yield from _digamma_accurate(study)
    yield from _average_dearer(study)
    yield Finding(
        "less-capacity",
        "more privacy (smaller k) means less capacity",
        "VI-3",
        "less",
        "; ".join(f"{NAMES[m]} {v[0] / 1e3:,.1f} … {v[-1] / 1e3:,.1f} MWh" for m, v in study.capacity.items()),
        judge_statement({NAMES[m]: rising(v) for m, v in study.capacity.items()}),
    )
    cost = study.cost
    real = {name: values for name, values in cost.items() if name != PRINTED}
    yield Finding(
        "greater-cost",
        "more privacy (smaller k) means a greater cost",
        "VI-3, Fig. 8",
        "greater",
        f"one release ${cost[ONE][0]:,.2f} … ${cost[ONE][-1]:,.2f}",
        judge_statement({name: falling(values, study.cost_error.get(name)) for name, values in real.items()}),
    )


def _digamma_dearer(study: Study) -> Iterator[Finding]:
    for suffix, name, short in (("", "exact loss", "exact"), (FORMULA, "paper's formulas", "paper")):
        taylor, digamma = study.cost[f"taylor{suffix}"], study.cost[f"digamma{suffix}"]
        over = {f"k = {k:g}": study.at(digamma, k) / study.at(taylor, k) - 1 for k in KS}
        yield Finding(
            f"digamma-dearer-{short}",
            "Digamma is slightly more expensive than Taylor",
            "VI-3, Fig. 8",
            "slightly more",
            _dear(study, f"digamma{suffix}", f"taylor{suffix}"),
            judge_within(over, 1e-9, SLIGHTLY_DEARER, 1, "it is more expensive"),
            name,
        )


def _digamma_accurate(study: Study) -> Iterator[Finding]:
    claim = "Digamma provides more accurate solutions than Taylor"
    if study.row is not None:
        error = study.kernel_error
        yield Finding(
            "accurate-kernel",
            claim,
            "VI-3",
            "more accurate",
            f"largest error {error['digamma']:.0e} against {error['taylor']:.1e} nats",
            judge_statement({"this row at k = 50": error["digamma"] < error["taylor"]}),
            "as E[log x] of the noise",
        )
    digamma, taylor = study.cost["digamma"], study.cost["taylor"]
    yield Finding(
        "accurate-policy",
        claim,
        "VI-3",
        "more accurate",
        f"exact loss {_dear(study, 'digamma', 'taylor')}",
        judge_statement({f"k = {k:g}": study.at(digamma, k) < study.at(taylor, k) for k in KS}),
        "deployed, nearer to the optimum",
    )


def _average_dearer(study: Study) -> Iterator[Finding]:
    cost = study.cost
    readings = {
        "one-release": ("plan made on one release, exact loss", ONE, "", ""),
        "exact": ("averaged policy, exact loss", "average-exact", "", ""),
        "leading": ("Corollary 3 corrected, leading order in 1/k, against exact losses", LEADING, "", ""),
        "one-step": ("the paper's one-step formula on one release, against its other formulas", ONE_STEP, FORMULA, ""),
        "printed": ("Corollary 3 as printed, against the paper's other formulas", PRINTED, FORMULA, " (E2, E3)"),
    }
    for short, (title, name, suffix, misprint) in readings.items():
        errors = study.cost_error.get(name)
        cases = {}
        for k in KS:
            dearest = max(study.at(cost[f"taylor{suffix}"], k), study.at(cost[f"digamma{suffix}"], k))
            spread = 0.0 if errors is None else study.at(errors, k)
            cases[f"k = {k:g}"] = differs(study.at(cost[name], k) - dearest, spread)
        found = judge_statement(cases)
        below = short == "printed" and min(study.at(cost[name], k) for k in KS) < 0
        yield Finding(
            f"average-dearer-{short}",
            "average value is more expensive than both Taylor and Digamma",
            "VI-3, Fig. 8",
            "more expensive",
            _dear(study, name, f"digamma{suffix}") + " for Digamma",
            Verdict(found.word, f"{found.reason}{'; below zero it is no cost' if below else ''}{misprint}"),
            title,
        )


def _dear(study: Study, first: str, second: str) -> str:
    """Write two costs beside each other, for each k of the paper."""
    pairs = {k: (study.at(study.cost[first], k), study.at(study.cost[second], k)) for k in KS}
    return ", ".join(f"{_dollars(a)} against {_dollars(b)} (k = {k:g})" for k, (a, b) in pairs.items())


def _dollars(value: float) -> str:
    size = abs(value)
    return f"{'−' if value < 0 else ''}${size:,.2f}" if size >= 0.01 else f"${size:.1g}"


def privacy_findings(study: Study) -> Iterator[Finding]:
    """Judge what the paper says of the privacy of policies, Section V and Fig. 8."""
    if study.row is not None:
        pair, ks = study.epsilon["exact, this pair"], study.effort.ks
        found = judge_statement({name: rising(values[::-1]) for name, values in study.epsilon.items()})
        yield Finding(
            "decrease",
            "privacy decreases with a decrease in k",
            "VI-3",
            "decreases",
            f"ε goes from {pair[-1]:.2f} to {pair[0]:.3f} as k falls from {ks[-1]:g} to {ks[0]:g}",
            found if found.word == REPRODUCED else Verdict(found.word, f"{found.reason} (E12)"),
        )
    worst = max(study.recovery.values())
    yield Finding(
        "stochastic-private",
        "the Taylor and Digamma policies are differentially private",
        "VI-2, Figs. 5, 8",
        "private",
        f"true matrix read back from the policy's last step alone, error {worst:.0e}",
        judge_private(study.recovery),
    )
    if study.row is not None:
        single, most = (
            {k: study.at(study.epsilon[name], k) for k in KS}
            for name in ("exact, this pair", "average of 1000, composed")
        )
        yield Finding(
            "average-private",
            f"the policy averaged over {DRAWS} draws is as private as one draw",
            "V, Fig. 8",
            "the same ε",
            ", ".join(
                f"ε from {study.attack[k]:.1f} (attack) to {most[k]:,.1f} (composed), one {single[k]:.2f} (k = {k:g})"
                for k in KS
            )
            + f"; attacked is the averaged policy of the row with z known, and the attack can show {study.ceiling:.1f} "
            "at most",
            judge_as_private(single, study.attack, study.ceiling),
        )
        open_book = worst <= RECOVERED
        yield Finding(
            "epsilon-by-method",
            "the stochastic and the average value approach differ in ε, too",
            "VI-3, Fig. 8",
            "differ",
            f"Taylor, Digamma: {'no finite ε' if open_book else 'ε not shown to be infinite'}; average value at most "
            + ", ".join(f"{most[k]:,.1f} (k = {k:g})" for k in KS),
            _by_method(open_book, most),
        )


def _by_method(open_book: bool, most: dict[float, float]) -> Verdict:
    """Judge that ε differs: policies that give the matrix away have none, averages of releases have a finite one."""
    found = judge_statement({f"k = {k:g}": open_book and np.isfinite(value) for k, value in most.items()})
    return Verdict(
        found.word,
        f"{found.reason}, each made as the paper does (E8, E9); made from one release, all have that one's ε",
    )
