"""Tests of `participants`: each is read from its own lines alone, and lives as the model says."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from dp_ensemble_env import scenarios
from dp_ensemble_env.context import Context
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy import Fleet, PrivacyLedger, mechanism
from dp_ensemble_env.privacy.participants import classes_of, context_paths
from dp_ensemble_env.scenarios import Card
from dp_ensemble_env.scenarios.problem import draw_release

# ------------------------------------------------------------------ reading
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
DECLARED = {"edges": [0, 2, 4, 6], "step_minutes": 15, "stamp": "start"}


def write(path, text):
    path.write_text(text)
    return path


def test_a_wide_file_has_one_participant_a_column(tmp_path):
    fleet = Fleet.read(write(tmp_path / "fleet.csv", WIDE), **DECLARED)
    assert_array_equal(fleet.counts, [NORTH, SOUTH])  # 9 kW lies beyond the edges, in the outermost level
    pytest.importorskip("pyarrow")
    import pyarrow as pa
    from pyarrow import parquet

    rows = [line.split(",") for line in WIDE.splitlines()]
    columns = {name: [row[i] or None for row in rows[1:]] for i, name in enumerate(rows[0])}
    parquet.write_table(pa.table(columns), tmp_path / "fleet.parquet")
    assert_array_equal(Fleet.read(tmp_path / "fleet.parquet", **DECLARED).counts, fleet.counts)


def test_a_folder_has_one_participant_a_file_with_all_its_meters(tmp_path):
    rows = [line.split(",") for line in WIDE.splitlines()]
    write(tmp_path / "a.csv", "\n".join(",".join(row[:2]) for row in rows))
    write(tmp_path / "b.csv", "\n".join(",".join((row[0], row[2])) for row in rows))
    write(tmp_path / "both.csv", WIDE)
    write(tmp_path / "notes.md", "not a meter")
    assert_array_equal(Fleet.read(tmp_path, **DECLARED).counts, [NORTH, SOUTH, np.add(NORTH, SOUTH)])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="holds no meter files"):
        Fleet.read(tmp_path / "empty", **DECLARED)


def test_an_id_column_joins_the_meters_of_a_participant(tmp_path):
    lines = [line.split(",") for line in WIDE.splitlines()[1:]]
    north = [f"ann,m1,{time},{kw}" for time, kw, _ in lines if kw]
    south = [f"ann,m2,{time},{kw}" for time, _, kw in lines]
    third = [f"bob,m3,{time},{kw}" for time, _, kw in lines]
    path = write(tmp_path / "long.csv", "\n".join(["owner,meter,time,kW", *north, *south, *third]))
    assert_array_equal(Fleet.read(path, id_column="owner", **DECLARED).counts, [np.add(NORTH, SOUTH), SOUTH])
    with pytest.raises(ValueError, match="no column 'customer'; its columns are owner, meter, time, kW"):
        Fleet.read(path, id_column="customer", **DECLARED)
    with pytest.raises(ValueError, match="contradict"):
        Fleet.read(path, id_column="owner", layout="wide", **DECLARED)


def test_who_cannot_be_read_is_left_out_and_named_to_the_operator_alone(tmp_path):
    fleet = Fleet.read(write(tmp_path / "fleet.csv", WIDE.replace("00:15,2.5,5.0", "00:15,2.5,five")), **DECLARED)
    assert_array_equal(fleet.counts, [NORTH])
    assert list(fleet.left_out) == ["south (kW)"] and "five" in fleet.left_out["south (kW)"]
    ledger = PrivacyLedger()
    release = ledger.release(mechanism("gaussian:epsilon=1"), fleet, 0)
    for told in (repr(fleet), str(release), ledger.to_json(), str(ledger.statement()), ledger.statement().markdown()):
        assert "south" not in told and "five" not in told
    assert "level edges" in ledger.declared and "step of 15 minutes" in ledger.declared


def test_another_step_is_averaged_or_left_out(tmp_path):
    quarters = (f"2024-07-01 0{i // 4}:{15 * (i % 4):02},{kw}" for i, kw in enumerate((1, 3, 2, 2, 5)))
    write(tmp_path / "a.csv", "\n".join(["time,kw", *quarters]))
    write(tmp_path / "b.csv", "time,kw\n2024-07-01 00:00,1\n2024-07-01 01:00,2\n2024-07-01 02:00,2\n")
    fleet = Fleet.read(tmp_path, **DECLARED)
    assert fleet.participants == 1 and "every 60 minutes, and 15 were declared" in fleet.left_out["b.csv"]
    hours = Fleet.read(tmp_path, **{**DECLARED, "step_minutes": 30})
    assert_array_equal(hours.counts[0], [[0, 0, 0], [0, 1, 0], [0, 0, 0]])  # 2, 2, and half of a half hour


def test_files_are_refused_for_their_declarations_and_duplicate_names(tmp_path):
    path = write(tmp_path / "fleet.csv", WIDE)
    for wrong, words in (
        ({"edges": [0, 2, 1]}, "edges must increase"),
        ({"step_minutes": 0}, "step_minutes"),
        ({"delimiter": "|"}, "names no columns"),
    ):
        with pytest.raises(ValueError, match=words):
            Fleet.read(path, **{**DECLARED, **wrong})
    assert Fleet.read(path, exclude=["2024-07-01"], **DECLARED).counts.sum() == 0
    with pytest.raises(ValueError, match="'north' is in .* twice"):
        Fleet.read(write(tmp_path / "twice.csv", "time,north,north\n2024-07-01 00:00,1,2\n"), **DECLARED)
    with pytest.raises(ValueError, match="line 2 of .* has 4 cells, its header 3"):
        Fleet.read(write(tmp_path / "ragged.csv", "time,a,b\n2024-07-01 00:00,1,2,3\n"), **DECLARED)


#: How one participant writes its readings: step in minutes, decimal sign, order of the date, cells that are no numbers.
STYLES = st.sampled_from(["plain", "hourly", "comma", "day first", "words", "negative", "net", "empty", "late"])


def column(style: str, seed: int) -> dict[str, str]:
    """Return the cells of one participant by their stamp."""
    rng = np.random.default_rng(seed)
    days = 16 if style == "late" else 12
    start = np.datetime64("2024-07-01T00:00") + np.timedelta64(days - 12, "D")
    stamps = start + np.arange(0, 12 * 96, 4 if style == "hourly" else 1) * np.timedelta64(15, "m")
    cells = [f"{value:.2f}" for value in rng.uniform(0.1, 6.0, len(stamps))]
    cells = [cell.replace(".", ",") for cell in cells] if style == "comma" else cells
    if style in ("words", "negative"):
        cells[5] = {"words": "offline", "negative": "-3.0"}[style]
    shape = "%d/%m/%Y %H:%M" if style == "day first" else "%Y-%m-%d %H:%M"
    cells = [] if style == "empty" else cells
    return {one.item().strftime(shape): cell for one, cell in zip(stamps, cells, strict=False)}


def written(layout: str, people: dict[str, dict[str, str]], path):
    """Write the participants as a file, or as files of a folder."""
    if layout == "files":
        path.mkdir()
        for name, cells in people.items():
            write(path / f"{name}.csv", "\n".join(["time;kW", *(f"{time};{cell}" for time, cell in cells.items())]))
        return path
    if layout == "long":
        lines = [f"{name};{time};{cell}" for name, cells in people.items() for time, cell in cells.items()]
        return write(path, "\n".join(["id;time;kW", *lines]))
    times = sorted({time for cells in people.values() for time in cells})
    lines = [";".join([time, *(cells.get(time, "") for cells in people.values())]) for time in times]
    return write(path, "\n".join([";".join(["time", *(f"{name} kW" for name in people)]), *lines]))


@settings(max_examples=12, deadline=None)
@given(
    layout=st.sampled_from(["wide", "long", "files"]),
    styles=st.lists(STYLES, min_size=2, max_size=4),
    dropped=st.integers(0),
)
def test_dropping_one_participant_leaves_every_other_count(tmp_path_factory, layout, styles, dropped):
    folder = tmp_path_factory.mktemp("fleet")
    people = {f"p{i}{'net' if style == 'net' else ''}": column(style, i) for i, style in enumerate(styles)}
    options = {**DECLARED, "delimiter": ";", "id_column": "id" if layout == "long" else None}

    def counts(some):
        fleet = Fleet.read(written(layout, some, folder / f"{len(some)}.csv"), layout=layout, **options)
        names = [name for name in some if not any(name == left.split(".")[0].split(" ")[0] for left in fleet.left_out)]
        return dict(zip((n for n in names if layout != "long" or some[n]), fleet.counts.tolist(), strict=True))

    name = list(people)[dropped % len(people)]
    everyone, others = counts(people), counts({key: value for key, value in people.items() if key != name})
    everyone.pop(name, None)
    assert everyone == others


# ------------------------------------------------------------------ simulating
DAYS = 12


def rows(rng, *shape):
    weights = rng.dirichlet(np.ones(shape[-1]), shape[:-1]) * (rng.random(shape) > 0.25)
    weights[..., 0] += 0.05
    return weights / weights.sum(axis=-1, keepdims=True)


def make(lead=(), nature_lead=(), n=4, m=3, c=2, horizon=5, contexts=True, nature=True, **changes):
    rng = np.random.default_rng(11)
    m = m if nature else n
    fields = {
        "default": rows(rng, *lead, n, m),
        "power_kw": np.arange(1.0, n + 1.0),
        "utility": rng.normal(size=(horizon + 1, n)),
        "discomfort_penalty": 2.0,
        "initial": rng.dirichlet(np.ones(n)),
        "nature": rows(rng, *nature_lead, m, n) if nature else None,
        "context": Context(rows(rng, horizon, c, c), start=rng.dirichlet(np.ones(c))) if contexts else None,
    }
    return EnsembleModel(**{**fields, **changes})


MODELS = {
    "times and contexts": make((5, 2), (5, 2)),
    "contexts": make((1, 2)),
    "times": make((5,), (5,), contexts=False),
    "no nature": make((1, 2), nature=False),
}


def expected_visits(model, paths):
    """Expected decisions of one participant in each time, context and state, given the contexts of the days."""
    behaviour, nature, _, _ = model.tables()
    visits = np.zeros(behaviour.shape[:3])
    for path in paths:
        share = model.initial
        for t, w in enumerate(path):
            visits[t, w] += share
            share = share @ behaviour[t, w] @ nature[t, w]
    return visits


def by_shape(model, table):
    """Sum (T, c, n) over what the default does not tell apart."""
    lead = model.default.shape[:-2]
    if len(lead) == 2:
        return table.sum(axis=0, keepdims=True) if lead[0] == 1 else table
    return table.sum(axis=1) if len(lead) == 1 else table.sum(axis=(0, 1))


@pytest.mark.parametrize("name", MODELS)
def test_participants_visit_and_decide_as_the_model_says(name):
    model, number = MODELS[name], 3000
    fleet = scenarios.participants(model, number, days=DAYS, seed=3)
    assert fleet.shape == model.default.shape and fleet.participants == number
    counts = fleet.counts.sum(axis=0, dtype=float)
    seen = counts.sum(axis=-1)
    visits = by_shape(model, expected_visits(model, context_paths(model, DAYS, np.random.default_rng(3))))
    # Visits of one participant to a row vary by DAYS * T at most; decisions in a row are independent.
    error = np.sqrt(number * visits * model.horizon) + 1e-9
    assert (np.abs(seen - number * visits) <= 4.5 * error).all()
    assert np.abs(seen - number * visits[..., ::-1]).max() > 9 * error.max()  # other states would be noticed
    default = model.default
    assert not counts[default == 0].any()
    error = np.sqrt(default * (1 - default) / np.maximum(seen, 1)[..., None])
    assert (np.abs(counts / np.maximum(seen, 1)[..., None] - default) <= 4.5 * error + (seen == 0)[..., None]).all()


def test_what_repeats_itself_in_the_default_is_one_class():
    day, night = (rows(np.random.default_rng(seed), 4, 3) for seed in (1, 2))
    model = make((5,), (), contexts=False, default=np.stack([night, day, day, day, night]))
    fleet = scenarios.participants(model, 40, days=3)
    assert_array_equal(fleet.classes, [0, 1, 1, 1, 0])  # numbered as they come, whatever the values are
    assert fleet.drawn_shape == (2, 4, 3) and fleet.shape == (5, 4, 3)
    assert fleet.counts[:, 0].sum() == 40 * 3 * 2
    release = mechanism("gaussian:epsilon=1").release(fleet, 1)
    assert_array_equal(release.matrix[1], release.matrix[3])
    assert_array_equal(classes_of(model.override(guess=np.stack([day, night, day, day, night]))), [0, 1, 2, 2, 3])
    assert classes_of(MODELS["times"]) is None


def test_participants_differ_as_they_are_told_to():
    model = make((), (), n=2, m=2, contexts=False, horizon=20, default=np.full((2, 2), 0.5))
    kappa, number = 8.0, 3000
    fleet = scenarios.participants(model, number, days=60, seed=1, heterogeneity=kappa)
    seen = fleet.counts[:, 0].sum(axis=1)
    share = (fleet.counts[:, 0, 0] / np.maximum(seen, 1))[seen > 200]
    # Beta(4, 4): variance 1/36, known here to some 3 %, and the binomial error adds at most 1/800.
    assert abs(share.mean() - 0.5) < 4.5 * np.sqrt(1 / 36 / len(share))
    assert 0.0278 * 0.9 < share.var() < 0.0278 * 1.1 + 1 / 800
    alike = scenarios.participants(model, 300, days=60, seed=1).counts[:, 0]
    assert (alike[:, 0] / alike.sum(axis=1)).var() < 2 * 0.25 / alike.sum(axis=1).min()


def test_a_scenario_may_say_how_its_participants_differ():
    model = MODELS["contexts"]

    def hook(model, count, days, rng):
        return [[(t, 1, 2, i % 3) for t in range(model.horizon)] * days for i in range(count)]

    scenarios.register("hooked", lambda seed: model, Card("Hooked", "A test."), participants=hook)
    try:
        fleet = scenarios.participants("hooked", 3, days=2)
        expected = np.zeros((3, *model.default.shape), dtype=int)
        expected[np.arange(3), 0, 1, 2, np.arange(3)] = 2 * model.horizon
        assert_array_equal(fleet.counts, expected)
    finally:
        scenarios.remove("hooked")
    with pytest.raises(ValueError, match="heterogeneity"):
        scenarios.participants(model, 1, heterogeneity=-1.0)


@pytest.mark.parametrize("name", scenarios.names())
def test_every_scenario_has_participants_whose_release_it_takes(name):
    model = scenarios.make(name)
    fleet = scenarios.participants(name, 30, days=2)
    assert fleet.shape == model.default.shape
    assert fleet.counts.sum() == 30 * 2 * model.horizon
    made = mechanism("gaussian:epsilon=1")
    release = made.release(fleet, 1, **made.terms_of(model))
    assert_array_equal(model.public(release).default, release.matrix)


# ------------------------------------------------------------------ a fleet that a spec asks for
class TestSimulatedFleet:
    SPEC = "gaussian:epsilon=1,participants=60"

    def test_depends_on_behaviour_number_and_heterogeneity_alone(self):
        model, other = scenarios.make("call"), scenarios.make("call", instance=1)
        fleet = mechanism(self.SPEC).data_of(model)
        assert fleet.participants == 60
        same = mechanism(self.SPEC.replace("epsilon=1", "epsilon=2")).data_of(model.override(discomfort_penalty=1.0))
        assert same.fingerprint == fleet.fingerprint
        others = [mechanism(self.SPEC).data_of(other), mechanism(f"{self.SPEC}1").data_of(model)]
        others += [mechanism(f"{self.SPEC},heterogeneity=8").data_of(model)]
        assert len({fleet.fingerprint, *(one.fingerprint for one in others)}) == 4

    def test_the_seed_of_a_release_moves_the_noise_alone(self):
        model = scenarios.make("call")
        spec = self.SPEC.replace("epsilon=1", "epsilon=5000")
        first, again, second = (draw_release(spec, model, seed) for seed in (0, 0, 1))
        assert_array_equal(first.matrix, again.matrix)
        assert (first.matrix != second.matrix).any() and first.event == second.event

    @pytest.mark.parametrize(("name", "spec"), [("feeder", SPEC), ("pool-pumps", "adaptive:epsilon=1,participants=20")])
    def test_one_string_privatises_an_id(self, name, spec):
        env = gymnasium.make(scenarios.environment_id(name), privacy=spec, ledger=PrivacyLedger())
        env.reset(seed=0)
        env.step(env.action_space.sample())
        assert env.unwrapped.release.event.type == spec.split(":")[0]
        assert env.unwrapped.ledger.spent(1e-6) == pytest.approx(1.0)
        assert_array_equal(env.unwrapped.release.matrix, draw_release(spec, scenarios.make(name), 0).matrix)

    def test_participants_who_exist_are_refused(self):
        fleet = scenarios.participants("call", 5, days=1)
        with pytest.raises(ValueError, match="leave participants"):
            draw_release(self.SPEC, scenarios.make("call"), 0, fleet=fleet)
