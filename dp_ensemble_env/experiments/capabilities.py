r"""What an agent can do, in five numbers between 0 and 100, in the manner of bsuite.

With :math:`S` the score of an agent on a scenario (interquartile mean over the test instances), :math:`O` that of the
best open loop and :math:`G` that of the plan without data:

feedback
    mean of :math:`100\,(S - O)/(100 - O)` over the scenarios with :math:`O \le 85`: 0 for the best
    sequence that never looks at the context.
data
    mean of :math:`100\,(P - G)/(100 - G)` over the scenarios with :math:`G \le 85`, where `P` is the score of the
    agent made on a private release and deployed on the truth: 0 for the plan without data.
generalisation
    :math:`100\,\bar A/\bar H`: its mean score on test instances, played as it was made on training instances, over
    that where it was made. Not measured where that is below 10, since nothing can be lost there.
constraint
    mean of :math:`S` over the scenarios with a limit on, or a target for, the aggregate.
scale
    mean of :math:`S` over the third of the scenarios with the most entries in their behaviour.

`O` and `G` are those that the cards of the scenarios show. Intervals resample the instances of each scenario on their
own. A negative number means: worse than the reference.
"""

from __future__ import annotations

import math

import numpy as np

from dp_ensemble_env.agents.statistics import FloatArray, Interval, around, interquartile_mean, resampled
from dp_ensemble_env.experiments.suite import Entry, Facts, Suite

AXES = ("feedback", "data", "generalisation", "constraint", "scale")
#: A scenario needs feedback or data if the reference leaves at least so much.
DEMANDING = 85.0
#: Below this mean score there is nothing to lose on other instances.
LEAST = 10.0


def capabilities(suite: Suite, agent: str, seed: int = 0) -> dict[str, Interval | None]:
    """Return the five capabilities of an agent with 95 % intervals; None where one was not measured."""
    mine, where, rng = suite.of(agent), members(suite), np.random.default_rng(seed)
    found: dict[str, Interval | None] = {}
    for axis in AXES:
        entries = [mine.get(name) for name in where[axis]]
        if not entries or any(entry is None for entry in entries):  # an agent is measured on all of them, or not at all
            found[axis] = None
        elif axis == "generalisation":
            found[axis] = _kept([entry for entry in entries if entry is not None], rng)
        else:
            parts = [_part(axis, entry, suite.facts[entry.scenario]) for entry in entries if entry is not None]
            found[axis] = _mean(parts, rng)
    return found


def _part(axis: str, entry: Entry, facts: Facts) -> tuple[FloatArray | None, float]:
    """Return the scores that count for a capability, and the score of the reference."""
    if axis == "feedback":
        return entry.scores, facts.open_loop
    if axis == "data":
        return entry.private, facts.public_guess
    return entry.scores, 0.0


def _mean(parts: list[tuple[FloatArray | None, float]], rng: np.random.Generator) -> Interval | None:
    """Average rescaled scores over scenarios."""
    known = [(scores, low) for scores, low in parts if scores is not None]
    if len(known) < len(parts):
        return None
    values = [_rescaled(np.array(interquartile_mean(scores)), low) for scores, low in known]
    draws = [_rescaled(resampled(scores, rng), low) for scores, low in known]
    return around(float(np.mean(values)), np.mean(draws, axis=0))


def members(suite: Suite) -> dict[str, list[str]]:
    """Return the scenarios that each capability is measured on."""
    facts = suite.facts
    return {
        "feedback": [n for n in facts if facts[n].open_loop <= DEMANDING],
        "data": [n for n in facts if facts[n].public_guess <= DEMANDING],
        "generalisation": list(facts),
        "constraint": [n for n in facts if facts[n].coupled],
        "scale": largest(facts),
    }


def largest(facts: dict[str, Facts]) -> list[str]:
    """Return the third of the scenarios with the most entries in their behaviour."""
    return sorted(facts, key=lambda name: -facts[name].size)[: math.ceil(len(facts) / 3)]


def _rescaled(scores: FloatArray, low: float) -> FloatArray:
    """Place scores between a reference (0) and the optimum (100)."""
    return 100.0 * (scores - low) / (100.0 - low)


def _kept(entries: list[Entry], rng: np.random.Generator) -> Interval | None:
    """Share of the score at home that is left on other instances."""
    pairs = [(e.abroad, e.home) for e in entries if e.abroad is not None and e.home is not None]
    if not pairs or len(pairs) < len(entries):
        return None
    home = float(np.mean([interquartile_mean(scores) for _, scores in pairs]))
    if home < LEAST:
        return None
    away = float(np.mean([interquartile_mean(scores) for scores, _ in pairs]))
    homes = np.mean([resampled(scores, rng) for _, scores in pairs], axis=0)
    aways = np.mean([resampled(scores, rng) for scores, _ in pairs], axis=0)
    return around(100.0 * away / home, 100.0 * aways / np.maximum(homes, LEAST))
