"""Chains by hour and day type: counted by hand, against the chain that made the data, and on thin data."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dp_ensemble_env.chain import MarkovChain, TimedChain, by_time, estimate_chain
from dp_ensemble_env.chain.calendar import day_type, hour_of_day
from dp_ensemble_env.meter import PowerSeries

HOUR = np.timedelta64(3600, "s")
BOTH = ("hour", "daytype")


def stamps(count, start="2018-07-02T00:00", seconds=3600):
    return np.datetime64(start, "s") + np.arange(count) * np.timedelta64(seconds, "s")


def truth(rng, n=3, spread=0.6):
    """Draw matrices (24, 2, n, n) around a common one: the smaller the spread, the more alike they are."""
    common = rng.dirichlet(np.ones(n) * 3, size=n)
    return (1 - spread) * common + spread * rng.dirichlet(np.ones(n), size=(24, 2, n))


def walk(tables, times, rng, holidays=()):
    """Simulate states with Python's own calendar: the matrix is that of the interval which the move leaves."""
    states = [0]
    for stamp in times[:-1].tolist():
        free = stamp.weekday() >= 5 or str(stamp.date()) in holidays
        states.append(int(rng.choice(tables.shape[-1], p=tables[stamp.hour, int(free), states[-1]])))
    return np.array(states)


def likelihood(tables, states, times):
    """Mean log-likelihood of a transition, cell by cell with Python's own calendar."""
    moves = zip(times[:-1].tolist(), states[:-1], states[1:], strict=True)
    return np.mean([np.log(tables[at.hour, int(at.weekday() >= 5), b, a]) for at, b, a in moves])


def by_loop(states, times, n, holidays=()):
    counts = np.zeros((24, 2, n, n), dtype=int)
    for at, b, a in zip(times[:-1].tolist(), states[:-1], states[1:], strict=True):
        counts[at.hour, int(at.weekday() >= 5 or str(at.date()) in holidays), b, a] += 1
    return counts


# ------------------------------------------------------------------ cells
def test_hours_and_day_types_are_those_of_the_calendar():
    start = datetime(2017, 12, 28, 3, 30)
    moments = [start + timedelta(minutes=37 * i) for i in range(2000)]
    times = np.array(moments, dtype="datetime64[s]")
    assert_array_equal(hour_of_day(times), [m.hour for m in moments])
    assert_array_equal(
        day_type(times, ["2018-01-01"]), [m.weekday() >= 5 or (m.month, m.day) == (1, 1) for m in moments]
    )
    assert hour_of_day(np.datetime64("1969-12-31T23:59:59")) == 23  # before the epoch, too


def test_transitions_counted_by_hand():
    """Friday 22:00 to Saturday 01:00, then Monday, a holiday, from 23:00: states 0 1 1 0 | 1 0."""
    friday, monday = stamps(4, "2018-07-06T22:00"), stamps(2, "2018-07-09T23:00")
    states, times = [0.0, 1, 1, 0, 1, 0], np.concatenate([friday, monday])
    chain = estimate_chain(states, times=times, edges=range(3), by=BOTH, holidays=["2018-07-09"])
    expected = np.zeros((24, 2, 2, 2), dtype=int)
    expected[22, 0, 0, 1] = 1  # Friday 22:00 -> 23:00
    expected[23, 0, 1, 1] = 1  # Friday 23:00 -> Saturday 0:00 leaves on a weekday
    expected[0, 1, 1, 0] = 1  # Saturday
    expected[23, 1, 1, 0] = 1  # the holiday; nothing is counted from Saturday to it
    assert_array_equal(chain.cell_counts, expected)
    assert_array_equal(chain.counts, [[0, 1], [2, 1]])
    k = chain.strength
    assert_allclose(chain.tables[23, 0, 1], [k * 2 / 3 / (1 + k), (1 + k / 3) / (1 + k)])
    assert_allclose(chain.tables[23, 1, 1], [(1 + k * 2 / 3) / (1 + k), k / 3 / (1 + k)])
    assert_allclose(chain.tables[5, 0], chain.default)  # never left at five: as pooled


@pytest.mark.parametrize(
    ("by", "shape"), [(("hour",), (24, 1)), (("daytype",), (1, 2)), (("daytype", "hour"), (24, 2))]
)
def test_one_key_or_both_in_any_order(by, shape):
    rng = np.random.default_rng(5)
    times = stamps(24 * 21)
    states = rng.integers(0, 3, times.size)
    chain = estimate_chain(states, times=times, edges=range(4), by=by)
    wanted = by_loop(states, times, 3)
    for axis, size in enumerate(shape):
        wanted = wanted if size > 1 else wanted.sum(axis=axis, keepdims=True)
    assert isinstance(chain, TimedChain) and chain.tables.shape == (*shape, 3, 3)
    assert_array_equal(chain.cell_counts, wanted)
    assert_array_equal(chain.cell_counts.sum(axis=(0, 1)), chain.counts)


def test_without_keys_the_chain_is_todays():
    states, times = np.random.default_rng(0).integers(0, 3, 100), stamps(100)
    plain, timed = (estimate_chain(states, 3, times=times, by=by) for by in ((), "hour"))
    assert type(plain) is MarkovChain and type(timed) is TimedChain
    for name in ("default", "edges", "power", "counts"):
        assert_array_equal(getattr(plain, name), getattr(timed, name))


def test_a_decision_leaves_from_the_interval_that_has_just_ended():
    rng = np.random.default_rng(1)
    times = stamps(24 * 28)
    chain = estimate_chain(walk(truth(rng), times, rng), times=times, edges=range(4), by=BOTH)
    decisions = stamps(25, "2018-07-02T00:00")  # a Monday: its first decision leaves from Sunday's last hour
    default = chain.at(decisions[:-1])
    assert default.shape == (24, 3, 3)
    assert_array_equal(default[0], chain.tables[23, 1])
    assert_array_equal(default[1:], chain.tables[:23, 0])
    assert_array_equal(chain.leaving(decisions[:-1])[1], chain.tables[1, 0])
    assert len({chain.tables[h, d].tobytes() for h in range(24) for d in range(2)}) == 48  # no two are equal


def test_quarter_hours_share_the_matrix_of_their_hour():
    times = stamps(96 * 14, seconds=900)
    states = np.random.default_rng(2).integers(0, 2, times.size)
    chain = estimate_chain(states, times=times, edges=range(3), by="hour")
    assert chain.cell_counts.sum(axis=(1, 2, 3)).tolist() == [56] * 23 + [55]  # the last reading leads nowhere
    assert_array_equal(chain.at(stamps(5, "2018-07-02T08:00", 900))[[0, 1, 4]], chain.tables[[7, 8, 8], 0])


def test_gaps_and_clock_changes():
    """Nothing is counted across a gap or the hour that spring skips; autumn's hour has been folded by the reader."""
    times = stamps(24 * 3, "2018-03-10T00:00")  # in New York the clock skips 2:00 to 3:00 on the 11th
    kw = np.random.default_rng(3).integers(0, 2, times.size).astype(float)
    kw[24 + 2] = np.nan
    kw[5] = np.nan
    chain = estimate_chain(PowerSeries(times, kw, HOUR), edges=range(3), by="hour")
    left = np.full(24, 3)
    left[[1, 2]] -= 1  # into and out of the skipped hour
    left[[4, 5]] -= 1  # into and out of the gap
    left[23] -= 1  # the end
    assert_array_equal(chain.cell_counts.sum(axis=(1, 2, 3)), left)
    assert chain.step == HOUR


def test_several_meters_are_counted_together_and_never_across():
    rng = np.random.default_rng(4)
    times = stamps(24 * 10)
    states = rng.integers(0, 3, (times.size, 4))
    together = estimate_chain(states, times=times, edges=range(4), by=BOTH)
    assert_array_equal(together.cell_counts, sum(by_loop(column, times, 3) for column in states.T))
    assert_array_equal(estimate_chain(states, edges=range(4)).counts, together.counts)


# ------------------------------------------------------------------ the estimate
def test_estimate_converges_to_the_chain_that_made_the_data():
    """The root mean square error of the tables falls like one over the square root of the number of days."""
    rng = np.random.default_rng(11)
    tables = truth(rng)
    errors = []
    for weeks in (20, 320):
        times = stamps(24 * 7 * weeks)
        chain = estimate_chain(walk(tables, times, rng), times=times, edges=range(4), by=BOTH)
        errors.append(np.sqrt(np.mean((chain.tables - tables) ** 2)))
    assert errors[1] < 0.05 and 2.5 < errors[0] / errors[1] < 6.0  # sixteen times the data: a quarter of the error
    for wrong in (np.roll(tables, 1, 0), np.roll(tables, -1, 0), tables[:, ::-1], tables.swapaxes(-1, -2)):
        assert np.sqrt(np.mean((chain.tables - wrong) ** 2)) > 3 * errors[1]


@pytest.mark.parametrize("spread", [0.3, 0.6])
def test_shrinkage_beats_both_extremes_on_thin_data(spread):
    """New days are likelier under the shrunk tables than under the pooled chain or the cells' own counts."""
    gains = []
    for seed in range(8):
        rng = np.random.default_rng([17, seed])
        tables, times = truth(rng, spread=spread), stamps(24 * 70)
        chain = estimate_chain(walk(tables, times, rng), times=times, edges=range(4), by=BOTH)
        pooled, raw = (by_time.shrink(chain.cell_counts, chain.default, k) for k in (np.inf, 0.1))
        fresh = walk(tables, stamps(24 * 300), rng)
        shrunk, *others = (likelihood(one, fresh, stamps(24 * 300)) for one in (chain.tables, pooled, raw))
        gains.append([shrunk - other for other in others])
    mean, error = np.mean(gains, axis=0), np.std(gains, axis=0, ddof=1) / np.sqrt(len(gains))
    assert (mean > 3 * error).all()


@pytest.mark.parametrize("strength", [3.0, 30.0])
def test_strength_is_that_of_the_prior_which_made_the_cells(strength):
    """Rows drawn from Dir(strength * common row): the best pseudo-counts are the prior's own."""
    found = []
    for seed in range(4):
        rng = np.random.default_rng([23, seed])
        common = rng.dirichlet(np.ones(3) * 5, size=3)
        tables = np.array([[[rng.dirichlet(strength * row) for row in common] for _ in range(2)] for _ in range(24)])
        times = stamps(24 * 140)
        found.append(estimate_chain(walk(tables, times, rng), times=times, edges=range(4), by=BOTH).strength)
    assert strength / 1.5 < np.exp(np.mean(np.log(found))) < 1.5 * strength


def test_cells_that_do_not_differ_are_pooled():
    """One matrix at all times: days left out are no likelier under the cells than under the pooled chain."""
    rng = np.random.default_rng(31)
    times = stamps(24 * 140)
    tables = np.broadcast_to(rng.dirichlet(np.ones(3), size=3), (24, 2, 3, 3))
    chain = estimate_chain(walk(tables, times, rng), times=times, edges=range(4), by=BOTH)
    assert chain.strength > 100 and np.abs(chain.tables - chain.default).max() < 0.2
    assert np.abs(chain.tables - tables).mean() < 0.02


def test_held_out_likelihood_against_a_loop():
    rng = np.random.default_rng(29)
    times = stamps(24 * 15, "2018-07-05T07:00")
    states = walk(truth(rng), times, rng)
    chain = estimate_chain(states, times=times, edges=range(4), by=BOTH)
    moments = times[:-1].tolist()
    fold = np.array([(moment.date() - moments[0].date()).days % 6 for moment in moments])
    strengths = chain.held_out[[0, 20, 40, -1], 0]
    expected = []
    for strength in strengths:
        total, scored = 0.0, 0
        for left in range(6):
            counts = np.zeros((24, 2, 3, 3))
            for i in np.flatnonzero(fold != left):
                counts[moments[i].hour, int(moments[i].weekday() >= 5), states[i], states[i + 1]] += 1
            pooled = counts.sum((0, 1)) / counts.sum((0, 1, 3))[:, None]
            for i in np.flatnonzero(fold == left):
                b, a = states[i], states[i + 1]
                cell = counts[times[i].item().hour, int(times[i].item().weekday() >= 5), b]
                p = (
                    pooled[b, a]
                    if np.isinf(strength)
                    else (cell[a] + strength * pooled[b, a]) / (cell.sum() + strength)
                )
                if pooled[b, a] > 0:
                    total, scored = total + np.log(p), scored + 1
        expected.append(total / scored)
    assert_allclose(chain.held_out[[0, 20, 40, -1], 1], expected, rtol=1e-12)
    assert chain.strength == chain.held_out[np.argmax(chain.held_out[:, 1]), 0]


def test_transitions_unknown_to_the_other_days_do_not_decide():
    """State 2 is seen on one day only: no strength explains it, and the estimate still exists."""
    states = np.tile([0, 1], 24 * 4)
    states[30:33] = [2, 2, 1]
    chain = estimate_chain(states, times=stamps(states.size), edges=range(4), by="hour")
    assert np.isfinite(chain.held_out).sum() == chain.held_out.size - 1  # but for the infinite strength
    assert_allclose(chain.tables.sum(axis=-1), 1.0)


# ------------------------------------------------------------------ refusals and looks
@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"by": "minute"}, "'hour', 'daytype' or both, got 'minute'"),
        ({"by": ("hour", "month")}, "got 'month'"),
        ({"by": 3}, "got 3"),
        ({"times": None}, "by= needs to know when"),
        ({"power": [1.0, 2.0, 1.0, 2.0], "times": stamps(4)}, "leave on one day"),
        ({"edges": [0, 1]}, "at least three increasing numbers"),
        ({"edges": [0, 2, 1]}, "increasing"),
        ({"edges": [0, np.nan, 1]}, "not finite"),
        ({"holidays": ["soon"]}, "holidays must be a list of days"),
        ({"power": np.arange(48.0)[:, None, None]}, "1-D or 2-D"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(kwargs, words):
    settings = {"power": np.tile([1.0, 2.0], 24), "n_states": 2, "times": stamps(48), "by": BOTH, **kwargs}
    with pytest.raises(ValueError, match=words):
        estimate_chain(**settings)


def test_tables_too_large_are_refused():
    with pytest.raises(ValueError, match="48 matrices of 2,000 levels are too large.*at most 1,020 levels"):
        estimate_chain(np.tile(np.arange(2000.0), 2), 2000, times=stamps(4000), by=BOTH)


def test_timed_chain_is_frozen_and_shows_itself():
    chain = estimate_chain(np.tile([1.0, 2, 2], 30), 2, times=stamps(90), by="hour")
    with pytest.raises(ValueError, match="read-only"):
        chain.tables[0, 0, 0, 0] = 1
    assert repr(chain).startswith("TimedChain(2 levels, ") and "24 matrices" in repr(chain)
