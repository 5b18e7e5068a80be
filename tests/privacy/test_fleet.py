"""Fleets: where participants come from, and what is kept of them."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dp_ensemble_env.chain.walks import stationary
from dp_ensemble_env.privacy import Fleet

CHAIN = np.array([[0.7, 0.2, 0.1], [0.25, 0.5, 0.25], [0.0, 0.4, 0.6]])
WIDE = """time,north (kW),south (kW)
2024-07-01 00:00,1.0,5.0
2024-07-01 00:15,2.5,5.0
2024-07-01 00:30,,1.0
2024-07-01 00:45,2.5,0.5
2024-07-01 01:00,9.0,2.5
"""
#: Levels 0, 1 and 2 of the two columns with the bounds 0, 2, 4, 6: 0 1 - 1 2 and 2 2 0 0 1.
NORTH = [[0, 1, 0], [0, 0, 1], [0, 0, 0]]
SOUTH = [[1, 1, 0], [0, 0, 0], [1, 0, 1]]


def test_transitions_are_counted_but_not_across_gaps():
    fleet = Fleet.from_states([[0, 1, -1, 1, 2], np.array([2, 2, 0, 0, 1]), []], n_states=3)
    assert_array_equal(fleet.counts, [NORTH, SOUTH, np.zeros((3, 3))])
    assert fleet.n_states == 3 and fleet.shape == (3, 3) and fleet.participants == 3
    with pytest.raises(ValueError, match="trajectory 1 is in state 3 at time 2"):
        Fleet.from_states([[0, 1], [0, 1, 3]], n_states=3)
    with pytest.raises(ValueError, match="list of integer states"):
        Fleet.from_states([[0.5, 1.0]], n_states=3)


def test_no_text_of_a_fleet_tells_what_is_private():
    few, many = (Fleet.simulate(CHAIN, number, seed=1, steps=50) for number in (3, 70))
    assert repr(few) == str(many) == "Fleet(3 levels)"


def test_counts_are_kept_small_and_cannot_be_changed():
    fleet = Fleet(np.full((2, 2, 2), 70_000))
    assert fleet.counts.dtype == np.uint32 and Fleet(np.ones((2, 2, 2), dtype=int)).counts.dtype == np.uint16
    with pytest.raises(ValueError):
        fleet.counts[0, 0, 0] = 1
    for wrong in (np.ones((2, 2)), np.ones((1, 1, 3), dtype=int), np.ones((1, 2, 2)), -np.ones((1, 2, 2), dtype=int)):
        with pytest.raises(ValueError, match="counts must be"):
            Fleet(wrong)


# ------------------------------------------------------------------ meters
def test_a_wide_file_has_one_participant_a_column(tmp_path):
    path = tmp_path / "fleet.csv"
    path.write_text(WIDE)
    fleet = Fleet.read(path, edges=[0, 2, 4, 6], stamp="start")
    assert_array_equal(fleet.counts, [NORTH, SOUTH])  # 9 kW lies beyond the edges, in the outermost level


def test_a_folder_has_the_participants_of_all_its_files(tmp_path):
    north, south = (tmp_path / f"{name}.csv" for name in "ab")
    rows = [line.split(",") for line in WIDE.splitlines()]
    north.write_text("\n".join(",".join(row[:2]) for row in rows))
    south.write_text("\n".join(",".join((row[0], row[2])) for row in rows))
    (tmp_path / "notes.md").write_text("not a meter")
    assert_array_equal(Fleet.read(tmp_path, edges=[0, 2, 4, 6], stamp="start").counts, [NORTH, SOUTH])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="holds no meter files"):
        Fleet.read(tmp_path / "empty", edges=[0, 1, 2])


def test_usage_points_of_a_green_button_file_are_participants(tmp_path):
    first, second = [250, 625, None, 625, 2250], [1250, 1250, 250, 125, 625]  # Wh in a quarter hour
    path = tmp_path / "usage.xml"
    path.write_text(green_button({"a": first, "b": second}))
    fleet = Fleet.read(path, edges=[0, 2, 4, 6], timezone="UTC")
    assert_array_equal(fleet.counts, [NORTH, SOUTH])


def green_button(meters: dict[str, list[int | None]]) -> str:
    def entry(content, title="", **links):
        refs = "".join(f'<link rel="{rel}" href="{href}"/>' for rel, hrefs in links.items() for href in hrefs)
        body = f'<content xmlns="http://naesb.org/espi">{content}</content>'
        return f"<entry><title>{title}</title>{refs}{body}</entry>"

    kind = "<ReadingType><powerOfTenMultiplier>0</powerOfTenMultiplier><uom>72</uom></ReadingType>"
    entries = [entry(kind, self=["ReadingType/1"])]
    for name, values in meters.items():
        readings = "".join(
            f"<IntervalReading><timePeriod><duration>900</duration><start>{1704085200 + 900 * i}</start></timePeriod>"
            f"<value>{value}</value></IntervalReading>\n"
            for i, value in enumerate(values)
            if value is not None
        )
        blocks = f"MeterReading/{name}/IntervalBlock"
        entries.append(entry("<MeterReading/>", name, self=[f"MeterReading/{name}"], related=[blocks, "ReadingType/1"]))
        entries.append(entry(f"<IntervalBlock>{readings}</IntervalBlock>", up=[blocks]))
    return '<?xml version="1.0"?>\n<feed xmlns="http://www.w3.org/2005/Atom">\n' + "\n".join(entries) + "</feed>"


def test_levels_come_from_readings_only_when_their_extremes_are_declared_public(tmp_path):
    path = tmp_path / "fleet.csv"
    path.write_text(WIDE)
    for wrong in ({}, {"edges": [0, 1, 2], "public_levels": 2}):
        with pytest.raises(ValueError, match="must not come from private readings by accident"):
            Fleet.read(path, stamp="start", **wrong)
    declared = Fleet.read(path, public_levels=2, stamp="start")
    assert_array_equal(declared.counts, Fleet.read(path, edges=[0.5, 4.75, 9.0], stamp="start").counts)
    with pytest.raises(ValueError, match="edges must increase"):
        Fleet.read(path, edges=[0, 2, 1], stamp="start")
    assert Fleet.read(path, edges=[0, 2, 4], stamp="start", exclude=["2024-07-01"]).counts.sum() == 0


def test_meters_with_different_steps_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("time,kw\n2024-07-01 00:00,1\n2024-07-01 00:15,2\n2024-07-01 00:30,2\n")
    (tmp_path / "b.csv").write_text("time,kw\n2024-07-01 00:00,1\n2024-07-01 01:00,2\n2024-07-01 02:00,2\n")
    with pytest.raises(ValueError, match="one step for all"):
        Fleet.read(tmp_path, edges=[0, 1, 2], stamp="start")


# ------------------------------------------------------------------ simulation
def test_alike_participants_follow_the_matrix():
    fleet = Fleet.simulate(CHAIN, 40, seed=3, heterogeneity=np.inf, steps=5000)
    counts = fleet.counts.sum(axis=0, dtype=float)
    seen = counts.sum(axis=1, keepdims=True)
    error = np.sqrt(CHAIN * (1 - CHAIN) / seen)
    assert (np.abs(counts / seen - CHAIN) <= 4.5 * error).all()
    assert_allclose(seen[:, 0] / seen.sum(), stationary(CHAIN), atol=0.01)
    assert_allclose(stationary(CHAIN) @ CHAIN, stationary(CHAIN), atol=1e-12)


def test_participants_differ_as_dirichlet_rows_do():
    kappa, number = 8.0, 4000
    fleet = Fleet.simulate(np.full((2, 2), 0.5), number, seed=5, heterogeneity=kappa, steps=2000)
    rows = fleet.counts[:, 0] / np.maximum(fleet.counts[:, 0].sum(axis=1, keepdims=True), 1)
    share = rows[fleet.counts[:, 0].sum(axis=1) > 200, 0]
    # Beta(4, 4): variance 1/36, known here to some 3 %, and the binomial error adds at most 1/800.
    assert abs(share.mean() - 0.5) < 4.5 * np.sqrt(1 / 36 / number) + 0.002
    assert 0.0278 * 0.9 < share.var() < 0.0278 * 1.1 + 1 / 800


def test_a_simulation_is_fixed_by_its_seed():
    one, same, other = (Fleet.simulate(CHAIN, 3, seed=seed, steps=100).counts for seed in (1, 1, 2))
    assert_array_equal(one, same)
    assert (one != other).any()
    assert Fleet.simulate(CHAIN, 0).participants == 0
    with pytest.raises(ValueError, match="one \\(n, n\\) matrix"):
        Fleet.simulate(np.stack([CHAIN, CHAIN]), 1)


# ------------------------------------------------------------------ the paper's mechanism
def test_no_participant_moves_a_row_of_the_pooled_chain_by_more_than_h():
    rng = np.random.default_rng(0)
    support = np.ones((3, 3), dtype=bool)
    for _ in range(50):
        counts = rng.integers(0, 30, size=(5, 3, 3)) * (rng.random((5, 3, 3)) < 0.6)
        chain = Fleet(counts).chain(4, support)
        for left_out in range(5):
            less = Fleet(np.delete(counts, left_out, axis=0)).chain(4, support)
            both = (chain.counts.sum(axis=1) > 0) & (less.counts.sum(axis=1) > 0)
            moved = np.abs(chain.default - less.default).sum(axis=1)
            assert (moved[both] <= chain.adjacency.h[both] + 1e-12).all()
            assert ((chain.counts - less.counts).sum(axis=1) <= 4).all()


def test_a_declared_support_is_all_that_is_pooled():
    support = np.array([[True, True], [False, True]])
    chain = Fleet([[[3, 1], [5, 2]]]).chain(10, support)
    assert_array_equal(chain.counts, [[3, 1], [0, 2]])
    assert chain.dropped == 5 and chain.adjacency.source == "devices"
    with pytest.raises(ValueError, match="support must be"):
        Fleet([[[3, 1], [5, 2]]]).chain(10, [[True, True], [False, False]])
