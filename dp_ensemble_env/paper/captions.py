"""What stands under each figure, in words that a reader can follow without the paper."""

from __future__ import annotations

import numpy as np

from dp_ensemble_env.paper.claims import percent
from dp_ensemble_env.paper.measures import LEADING, ONE, ONE_STEP, PRINTED
from dp_ensemble_env.paper.releases import DELTA
from dp_ensemble_env.paper.row import H
from dp_ensemble_env.paper.study import Study


def load_caption(study: Study) -> str:
    """Describe Figure 3."""
    text = (
        "(a) Power of the 100 buildings together: each day's range and mean; shaded, the readings that the chain is "
        "estimated from. (b) Default matrix: probability of going from one power level (row) to another (column) in "
        "one step when nobody interferes; white: never seen."
    )
    return text + ("" if study.row is None else " Outlined: the row of Figures 4 to 6.")


def _some(study: Study) -> str:
    count = 0 if study.row is None else len(study.row.successors)
    return (
        ""
        if count == 3
        else f" Of the row's {count} successors the three most likely are shown, rescaled to sum to one."
    )


def releases_caption(study: Study) -> str:
    """Describe Figure 4."""
    assert study.row is not None
    return (
        f"{study.effort.points} private copies of row {study.row.state + 1}, and as many of its neighbour (h = {H:g}), "
        "for k = 50 and k = 200. A point is three probabilities; at a corner that successor is certain. The larger k, "
        f"the less noise, and the easier the two clouds are to tell apart.{_some(study)}"
    )


def stochastic_caption(study: Study) -> str:
    """Describe Figure 5."""
    assert study.row is not None
    return (
        f"Noise-aware policies in state {study.row.state + 1} at {clock(study)}, computed for the row and for its "
        "neighbour: where the controlled ensemble goes next. The more alike the bars of a pair are, the less the "
        "policy depends on the h = 0.03 by which the rows differ; that alone does not make it private (see the claims)."
    )


def average_caption(study: Study) -> str:
    """Describe Figure 6."""
    assert study.row is not None
    share = float(study.adjacent["average-exact", 50.0][0][list(study.row.triple)].sum())
    held = _some(study) and f"{_some(study)} They hold {percent(share, 0)} of the expected policy at k = 50."
    return (
        f"Average value approach in the same state at {clock(study)}. (a), (b) Policies solved on "
        f"{study.effort.points} releases of the whole matrix, and of its neighbour; large markers: the expectation of "
        f"Proposition 3, computed exactly.{held} (c), (d) That expectation (bars, with the L1 distance between "
        "the two inputs) and the mean of the policies drawn (crosses). The two need not agree: Proposition 3 holds z "
        "at its true value, while every drawn policy has a z of its own."
    )


def event_caption(study: Study) -> str:
    """Describe Figure 7."""
    event = study.data.model.event
    learned = ", ".join(f"{one.name} {one.outcome.score:.1f} after {one.steps:,} steps" for one in study.learned)
    return (
        f"Power of the ensemble in the event of {str(study.data.model.times[0])[:10]}; lower is more curtailment. The "
        "noise-aware policies expect k = 50. Ad-hoc practice: a fixed shed while the event lasts, "
        f"{percent(study.shed_share)} of the energy used in it; its size is ours, not the paper's. Customer baseline: "
        "best 5 of the 10 last similar days"
        + (", not available for these data" if event is None or event.baseline_kw is None else "")
        + f". Trained on the spot, with their scores (0: uncontrolled, 100: optimum): {learned}; the best is drawn."
    )


def trade_off_caption(study: Study) -> str:
    """Describe Figure 8."""
    cost = study.cost
    printed = cost[PRINTED]
    near, far = (np.array(cost[name]) / cost[ONE] for name in (LEADING, ONE_STEP))
    text = (
        "(a) Cost of privacy against k: filled markers, the exact loss of the deployed policy (bars: two standard "
        "errors, where they can be seen); open markers, formulas. Those of Corollaries 1 and 2 can only lie above the "
        "exact loss. For a plan made on one release the same one-step formula gives "
        f"{far.min():.2f} to {far.max():.2f} times the exact loss, and Corollary 3 corrected to leading order "
        f"{near.min():.2f} to {near.max():.2f} times; as printed Corollary 3 is {min(printed):,.0f} to "
        f"{max(printed):,.0f} dollars, which is not drawn."
    )
    if study.row is None:
        return text
    return (
        f"{text} (b) Privacy loss at δ = {DELTA:g} of one row: by Theorem 2, exactly for the worst row with entries of "
        f"at least {study.row.least:.3f}, and exactly for this pair; of the average of 1000 draws, as 1000 releases. "
        "Policies by Taylor or Digamma on the true matrix have no finite ε; solved on one release they have its ε."
    )


def misprints_caption(_: Study) -> str:
    """Describe the figure of the misprints."""
    return (
        "(a) E2: distance of the expected policy by Proposition 3, as printed, corrected, and by the exact integral, "
        "from the Monte Carlo mean; in the grey zone it is Monte Carlo error alone. (b) E3: expected cost of one visit "
        "of the row by Corollary 3 as printed and as corrected (leading order in 1/k), with Monte Carlo (two standard "
        "errors)."
    )


def clock(study: Study) -> str:
    """Time of day that Figures 5 and 6 show."""
    return str(study.data.model.times[study.time])[11:16]
