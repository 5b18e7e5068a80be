"""The depot: waves of vans form a tree, and what is right to do depends on how many have come."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dp_ensemble_env.control.returns import power_by_context, shares
from dp_ensemble_env.scenarios.depot import HORIZON, TEXTBOOK, Night, arrivals, behaviour, depot, gate

NIGHT = Night((0, 5, 11, 15), (0.03, 0.22), (0.05, 0.1, 0.2, 0.3, 0.2, 0.15))


def test_vans_come_home_in_the_shares_that_were_announced():
    """Along each of the sixteen histories: the share away falls by the size of a wave within two steps of it."""
    context, nature = gate(NIGHT), arrivals(NIGHT)
    sizes = np.array(NIGHT.sizes)
    for path in itertools.product(range(2), repeat=4):
        names = [context.names.index(" ".join(("few", "many")[k] for k in path[: i + 1])) for i in range(4)]
        away, homes, w, seen = 1.0, np.zeros(6), names[0] - 30, []
        for t in range(HORIZON):
            wave = sum(t >= start for start in NIGHT.waves)
            w = names[wave - 1] - (30 if t in NIGHT.waves else 0)
            row = nature[t, w, 0]
            homes, away = homes + away * row[2:8], away * row[0]
            seen.append(away)
            assert row.sum() == pytest.approx(1.0) and (nature[t, w, 1:] == np.eye(14)[1:]).all()
            following = context.transition[t, w]
            if t + 1 in NIGHT.waves:
                assert sorted(following[following > 0]) == [0.5, 0.5]
            else:
                assert following[names[wave - 1]] == 1.0
        assert_allclose([seen[start + 1] for start in NIGHT.waves], 1 - np.cumsum(sizes[list(path)]), rtol=1e-12)
        assert_allclose(homes, sizes[list(path)].sum() * np.array(NIGHT.need), rtol=1e-12)


def test_news_is_shown_once_and_the_rest_is_silence():
    context = gate(NIGHT)
    context.check(HORIZON)
    assert context.branching(HORIZON) is None
    shown = dict(zip(context.names, context.features.argmax(axis=1).tolist(), strict=True))
    assert (shown["few many, announced"], shown["many few, announced"], shown["many few"]) == (2, 1, 0)
    assert depot(shown="all").context.is_shown and not depot().context.is_shown and depot().shares_shown


def test_behaviour_by_hand():
    table = behaviour(np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6]), 0.9)
    assert_allclose(table.sum(axis=1), 1.0)
    assert table[4, 10] == 0.3 and table[4, 4] == 0.7  # needs three half hours: waits or charges the first of them
    assert table[11, 10] == pytest.approx(0.9) and table[11, 4] == pytest.approx(0.1)  # three left: goes on, or waits
    assert table[8, 1] == table[0, 0] == table[1, 1] == 1.0  # the last half hour: full


def test_what_was_bought_is_what_textbook_vans_draw():
    model = depot(1)
    usual = model.override(default=TEXTBOOK, coupling=None)
    chance, power = power_by_context(usual, shares(usual, usual.default_policy))
    assert_allclose(model.coupling.level, (chance * power).sum(axis=1), atol=1e-12)
    assert_allclose(model.coupling.weight[1:], 0.2)
    # Full batteries only count at the end, by the half hours that are missing.
    assert not model.utility[:-1].any()
    assert_allclose(model.utility[-1], -3.0 * np.array([0, 0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5]))
