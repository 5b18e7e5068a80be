"""Tests of `reading`: every participant is read from its own lines alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from dp_ensemble_env.privacy import Fleet, PrivacyLedger, mechanism

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
    semicolons = write(tmp_path / "other.csv", WIDE.replace(",", ";").replace(".", ","))
    assert_array_equal(Fleet.read(semicolons, delimiter=";", **DECLARED).counts, fleet.counts)
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
    fleet = Fleet.read(tmp_path, **DECLARED)
    assert_array_equal(fleet.counts, [NORTH, SOUTH, np.add(NORTH, SOUTH)])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="holds no meter files"):
        Fleet.read(tmp_path / "empty", **DECLARED)


def test_an_id_column_joins_the_meters_of_a_participant(tmp_path):
    lines = [line.split(",") for line in WIDE.splitlines()[1:]]
    north = [f"ann,m1,{time},{kw}" for time, kw, _ in lines if kw]
    south = [f"ann,m2,{time},{kw}" for time, _, kw in lines]
    third = [f"bob,m3,{time},{kw}" for time, _, kw in lines]
    path = write(tmp_path / "long.csv", "\n".join(["owner,meter,time,kW", *north, *south, *third]))
    fleet = Fleet.read(path, id_column="owner", **DECLARED)
    assert_array_equal(fleet.counts, [np.add(NORTH, SOUTH), SOUTH])
    with pytest.raises(ValueError, match="no column 'customer'; its columns are owner, meter, time, kW"):
        Fleet.read(path, id_column="customer", **DECLARED)
    with pytest.raises(ValueError, match="contradict"):
        Fleet.read(path, id_column="owner", layout="wide", **DECLARED)


def test_who_cannot_be_read_is_left_out_and_named_to_the_operator_alone(tmp_path):
    text = WIDE.replace("00:15,2.5,5.0", "00:15,2.5,five")
    fleet = Fleet.read(write(tmp_path / "fleet.csv", text), **DECLARED)
    assert_array_equal(fleet.counts, [NORTH])
    assert list(fleet.left_out) == ["south (kW)"] and "five" in fleet.left_out["south (kW)"]
    ledger = PrivacyLedger()
    release = ledger.release(mechanism("gaussian:epsilon=1"), fleet, 0)
    for told in (repr(fleet), str(release), ledger.to_json(), str(ledger.statement()), ledger.statement().markdown()):
        assert "south" not in told and "five" not in told
    assert "level edges" in ledger.declared and "step of 15 minutes" in ledger.declared


def test_another_step_is_averaged_or_left_out(tmp_path):
    quarter = (
        "time,kw\n2024-07-01 00:00,1\n2024-07-01 00:15,3\n2024-07-01 00:30,2\n2024-07-01 00:45,2\n2024-07-01 01:00,5"
    )
    hourly = "time,kw\n2024-07-01 00:00,1\n2024-07-01 01:00,2\n2024-07-01 02:00,2\n"
    write(tmp_path / "a.csv", quarter)
    write(tmp_path / "b.csv", hourly)
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
        ({"layout": "tall"}, "layout"),
    ):
        with pytest.raises(ValueError, match=words):
            Fleet.read(path, **{**DECLARED, **wrong})
    with pytest.raises(TypeError, match="edges"):
        Fleet.read(path, step_minutes=15)
    assert Fleet.read(path, exclude=["2024-07-01"], **DECLARED).counts.sum() == 0
    with pytest.raises(ValueError, match="'north' is in .* twice"):
        Fleet.read(write(tmp_path / "twice.csv", "time,north,north\n2024-07-01 00:00,1,2\n"), **DECLARED)
    with pytest.raises(ValueError, match="line 2 of .* has 4 cells, its header 3"):
        Fleet.read(write(tmp_path / "ragged.csv", "time,a,b\n2024-07-01 00:00,1,2,3\n"), **DECLARED)


#: How one participant writes its readings: step in minutes, decimal sign, order of the date, cells that are no numbers.
STYLES = st.sampled_from(
    ["plain", "hourly", "comma", "day first", "words", "negative", "net", "empty", "spike", "late"]
)


def column(style: str, seed: int) -> dict[str, str]:
    """Return the cells of one participant by their stamp."""
    rng = np.random.default_rng(seed)
    days = 16 if style == "late" else 12
    start = np.datetime64("2024-07-01T00:00") + np.timedelta64(days - 12, "D")
    stamps = start + np.arange(0, 12 * 96, 4 if style == "hourly" else 1) * np.timedelta64(15, "m")
    cells = [f"{value:.2f}" for value in rng.uniform(0.1, 6.0, len(stamps))]
    cells = [cell.replace(".", ",") for cell in cells] if style == "comma" else cells
    if style in ("words", "negative", "spike"):
        cells[5] = {"words": "offline", "negative": "-3.0", "spike": "9e9"}[style]
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


def test_a_quarter_hour_meter_beside_hourly_ones_changes_nothing_for_them(tmp_path):
    """Read as one file, the step was the quarter hour, and nobody else had a transition left."""
    people = {f"p{i}": column("hourly", i) for i in range(5)}
    options = {**DECLARED, "delimiter": ";", "step_minutes": 60}
    alone = Fleet.read(written("wide", people, tmp_path / "alone.csv"), **options)
    beside = Fleet.read(written("wide", {**people, "fast": column("plain", 9)}, tmp_path / "beside.csv"), **options)
    assert alone.counts.sum() > 1000
    assert_array_equal(beside.counts[:5], alone.counts)
    assert beside.participants == 6
