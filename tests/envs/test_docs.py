"""The class docstring is the manual: what it says is compared with the running environment."""

from __future__ import annotations

import inspect
import re

import gymnasium
import numpy as np
import pytest

from dp_ensemble_env.envs import EnsembleEnv, EnsembleVectorEnv
from dp_ensemble_env.envs.ensemble import RENDER_MODES
from dp_ensemble_env.envs.registration import ACTIONS, PAPER, PAPER_SETTINGS
from dp_ensemble_env.envs.settings import INFOS, POPULATIONS, REDRAWS, REWARDS, EnvSettings, Options
from dp_ensemble_env.scenarios import SPLITS

MANUAL = inspect.getdoc(EnsembleEnv)


def section(title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", MANUAL, re.M | re.S)
    assert found, f"the manual has no section {title}"
    return found.group(1)


def table(title: str, header: str) -> list[list[str]]:
    """Rows of the table of a section whose first column is headed `header`."""
    rows, inside = [], False
    for line in section(title).splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
        if cells and cells[0] == header:
            inside = True
        elif not cells:
            inside = False
        elif inside and not set(cells[0]) <= set("-"):
            rows.append(cells)
    assert rows
    return rows


def test_sections_are_those_of_gymnasium_and_privacy() -> None:
    assert re.findall(r"^## (.*)$", MANUAL, re.M) == [
        "Description",
        "Action Space",
        "Observation Space",
        "Rewards",
        "Starting State",
        "Episode End",
        "Privacy",
        "Arguments",
        "Version History",
    ]


def test_documented_ids_and_populations_are_the_real_ones() -> None:
    ids = re.findall(r"`(dp_ensemble/[\w-]+)`", MANUAL)
    assert len(ids) >= 3 and all(name in gymnasium.registry for name in ids)
    assert PAPER in ids and f'`privacy="{PAPER_SETTINGS["privacy"]}"`' in section("Description")
    rows = [row[0] for row in table("Description", "population")]
    assert {re.sub(r"\W*(default)?\W*$", "", row).strip('`"') for row in rows} == {*POPULATIONS, "a number"}


def test_documented_info_keys_and_types_are_the_real_ones() -> None:
    documented = {row[0].strip("`"): row[1] for row in table("Rewards", "key")}
    env = EnsembleEnv("campus-event")
    for info in (env.reset()[1], env.step(np.zeros(20))[4]):
        assert {key: type(value).__name__ for key, value in info.items()} == documented
    more = {"occupancy", "default_occupancy", "curtailment_kw"}
    assert all(f"`{name}`" in section("Rewards") for name in (*more, "context", "cost", "coupling_cost", "instance"))
    assert set(EnsembleEnv("campus-event", infos="all").reset()[1]) == {*documented, *more}
    vector = EnsembleVectorEnv(2, "campus-event").reset()[1]
    assert {key for key in vector if not key.startswith("_")} == set(documented)


def test_documented_spaces_are_the_real_ones() -> None:
    rows = table("Action Space", "mode")
    for mode, space, _ in rows:
        name = re.search(r'"(\w+)"', mode).group(1)
        actual = EnsembleEnv("campus-event", action=name).action_space
        if name == "discrete":
            assert space == f"`Discrete({actual.n})`"
            continue
        low, high, shape = re.fullmatch(r"`Box\((-?\d), (\d), (\(.*\))\)`", space).groups()
        assert (actual.low == float(low)).all() and (actual.high == float(high)).all()
        assert actual.shape == eval(shape, {"n": 20, "m": 20, "k": 6})  # noqa: S307 - our own docstring
        assert actual.dtype == np.float32
    observation = EnsembleEnv("campus-event").observation_space
    assert "`Box(0, 1, (n + 5,), float32)`" in section("Observation Space")
    assert observation.shape == (25,) and observation.dtype == np.float32
    for row in table("Observation Space", "index"):
        assert row[2:4] == ["0", "1"]


@pytest.mark.parametrize("cls", [EnsembleEnv, EnsembleVectorEnv])
def test_documented_arguments_and_defaults_are_the_real_ones(cls: type) -> None:
    documented = {row[0].strip("`"): row[1].strip("`") for row in table("Arguments", "argument")}
    actual = {
        name: repr(parameter.default).replace("'", '"')
        for name, parameter in inspect.signature(cls.__init__).parameters.items()
        if name not in ("self", "num_envs", "autoreset_mode", "max_episode_steps", "options")
    }
    assert {name: default for name, default in documented.items() if name in actual} == actual
    assert set(documented) - set(actual) == set(Options.__annotations__)
    others = {name: eval(documented[name]) for name in Options.__annotations__}  # noqa: S307 - our own docstring
    given, left_out = EnvSettings.of("spot", **others), EnvSettings.of("spot")
    assert given.models[0].fingerprint == left_out.models[0].fingerprint
    assert given.override(models=left_out.models).__dict__ == left_out.__dict__
    for name in ("num_envs", "autoreset_mode"):
        assert name in inspect.getdoc(EnsembleVectorEnv)


def test_documented_choices_are_the_real_ones() -> None:
    rows = {row[0].strip("`"): set(re.findall(r'"([\w-]+)"', row[2])) for row in table("Arguments", "argument")}
    assert rows["population"] == set(POPULATIONS)
    assert rows["redraw"] == set(REDRAWS)
    assert rows["infos"] == set(INFOS)
    assert rows["render_mode"] == set(RENDER_MODES) == set(EnsembleEnv.metadata["render_modes"])
    assert rows["action"] == set(ACTIONS)
    assert rows["reward"] == set(REWARDS)
    assert rows["split"] == set(SPLITS)


def test_documented_numbers_of_the_default_model() -> None:
    model = EnsembleEnv("campus-event").model
    assert "(20 levels, 18 steps)" in section("Description") and (model.n_states, model.horizon) == (20, 18)


def test_example_of_the_manual_runs(capsys: pytest.CaptureFixture[str]) -> None:
    code = re.search(r"```python\n(.*?)```", section("Arguments"), re.S).group(1)
    exec(code, {})  # noqa: S102 - our own docstring
    total, optimal = map(float, capsys.readouterr().out.split())
    assert total == pytest.approx(optimal, rel=1e-4)
