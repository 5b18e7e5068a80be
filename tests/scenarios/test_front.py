"""The storm front: its context is the Bayesian forecast, and counting the bulletins is all that the past is worth."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dp_ensemble_env.context import Context
from dp_ensemble_env.control.returns import ExactReturn, optimal_tilts
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.scenarios.build import programme
from dp_ensemble_env.scenarios.front import SIGNS, believed, bulletins, front

DOCS = Path(__file__).parents[2] / "docs"
QUALITY, PRIOR, COUNT, SILENT, EVENT = 0.66, 0.47, 3, 2, 2


def prices(context):
    price = np.full(len(context), 0.07)
    price[-2:] = 0.6, -0.5
    return price


def furnaces(context, price):
    """Six steps of furnaces that pay a price by context."""
    default, power = programme([140.0, 92.0, 25.0], 10.0, 0.3, np.full(3, 0.15))
    utility = np.zeros((len(context.transition) + 1, len(context), len(power)))
    utility[1:] = -0.25 * price[:, None] * power
    initial = np.array([0.5, 0.2, 0.2, 0.1])
    return EnsembleModel(default, power, utility, 12.0, initial=initial, spread_start=True, context=context)


def tree_of_histories():
    """One context for each history of bulletins, with Bayes' rule applied to each: nothing is summarised."""
    nodes = [h for k in range(1, COUNT + 1) for h in itertools.product((0, 1), repeat=k)]
    place, size = {h: i for i, h in enumerate(nodes)}, len(nodes) + 2

    def storm(history):
        like = [np.prod([QUALITY if told == truth else 1 - QUALITY for told in history]) for truth in (1, 0)]
        return like[0] * PRIOR / (like[0] * PRIOR + like[1] * (1 - PRIOR))

    moves = np.tile(np.eye(size), (COUNT + SILENT + EVENT - 1, 1, 1))
    for history, i in place.items():
        p = storm(history)
        for t in range(COUNT + SILENT - 1):
            if len(history) == t + 1 and t < COUNT - 1:
                up = p * QUALITY + (1 - p) * (1 - QUALITY)
                moves[t, i] = 0.0
                moves[t, i, place[*history, 1]], moves[t, i, place[*history, 0]] = up, 1 - up
        if len(history) == COUNT:
            moves[COUNT + SILENT - 1, i] = np.eye(size)[-2] * p + np.eye(size)[-1] * (1 - p)
    first = PRIOR * QUALITY + (1 - PRIOR) * (1 - QUALITY)
    start = np.zeros(size)
    start[place[1,]], start[place[0,]] = first, 1 - first
    return Context(moves, start=start)


def test_the_count_is_worth_as_much_as_all_histories():
    full = tree_of_histories()
    count = bulletins(QUALITY, PRIOR, count=COUNT, silent=SILENT, event=EVENT, rounds=1)
    count = Context(count.transition[: len(full.transition)], count.names, count.start, count.features)
    values = []
    for context in (full, count):
        model = furnaces(context, prices(context))
        values.append(ExactReturn(model)(optimal_tilts(model)))
        assert values[-1] > ExactReturn(model)(0.0) + 1.0
    assert values[0] == pytest.approx(values[1], rel=1e-12)


def test_storms_are_as_likely_as_the_prior_in_both_rounds():
    context = bulletins(QUALITY, PRIOR)
    chances = context.distributions(len(context.transition))
    for t in (20, 23, 44, 47):
        assert_allclose(chances[t, -2:], [PRIOR, 1 - PRIOR], rtol=1e-12)
    assert_allclose(chances[24], context.start, atol=1e-15)  # the second round begins like the first
    assert believed(6, 12, QUALITY, PRIOR) == pytest.approx(PRIOR)  # as many for as against
    assert believed(1, 1, QUALITY, 0.5) == pytest.approx(QUALITY)


def test_signs_are_shown_and_the_count_is_not():
    model = front()
    shown = {n: SIGNS[g] for n, g in zip(model.context.names, model.context.features.argmax(1), strict=True)}
    assert shown["7 of the bulletins, comes"] == "comes" and shown["0 of the bulletins, silence"] == "silence"
    assert shown["storm"] == "storm" and not model.context.is_shown and not model.shares_shown
    twin = front(shown="all")
    assert twin.context.is_shown and twin.shares_shown
    assert ExactReturn(twin)(optimal_tilts(twin)) == ExactReturn(model)(optimal_tilts(model))
