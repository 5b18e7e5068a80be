"""Parts of the offline data sets that need no Minari; tests/integrations/test_minari.py has the rest."""

from __future__ import annotations

import json
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec, WrapperSpec
from helpers import load, random_model
from oracles import MODES, T, general_model

from dp_ensemble_env import campus_event
from dp_ensemble_env.agents import make_agent
from dp_ensemble_env.envs import EnsembleEnv
from dp_ensemble_env.envs.spec import PORTABLE, portable_spec
from dp_ensemble_env.experiments import datasets as make_dataset
from dp_ensemble_env.experiments.croissant import NAME, describe_folder
from dp_ensemble_env.experiments.datasets import DatasetSettings, check_spec, default_name, recover_environment
from dp_ensemble_env.scenarios.problem import ProblemSettings


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--episodes", "0"], "episodes must be at least 1"),
        (["--release-seed", "1"], "a release seed belongs to a release; pass --privacy dirichlet:k=50 too"),
        (["--kinds", "expert"], "uncontrolled"),
        (["--kinds", "standard", "--action", "price"], "no standard can be played in price mode; pass --action tilt"),
    ],
)
def test_bad_settings_are_refused_in_one_sentence(arguments, message, capsys, tmp_path):
    assert load("dataset").main([*arguments, "--output", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert message in error and error.startswith("dp-ensemble dataset: ") and error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_another_event_or_release_has_another_name():
    problems = [{}, {"date": "2018-07-03"}, {"window": "12:00-14:00"}, {"levels": 10}, {"tariff": 0.2}]
    campus = [ProblemSettings(scenario="campus-event", **one) for one in problems]
    names = [default_name(one, DatasetSettings()) for one in campus]
    for spec in ("dirichlet:k=50", "dirichlet:k=50.0000001", "public"):
        names.append(default_name(campus[0], DatasetSettings(privacy=spec)))
    names.append(default_name(campus[0], DatasetSettings(privacy="dirichlet:k=50", release_seed=2)))
    assert names[0] == "meanfield-tilt" and names[5] == "meanfield-tilt-k50" and len(set(names)) == len(names)


# ------------------------------------------------------------------ episodes
@pytest.mark.parametrize("population", ["mean-field", "single", 7])
def test_starts_have_their_shares(population):
    model = random_model(3).override(initial=np.array([0.5, 0.21, 0.0, 0.17, 0.1, 0.02]))
    env = EnsembleEnv(model, population)
    seeds, starts = make_dataset.draw_starts(env, 50, 1000)
    counts = np.bincount(starts, minlength=6)
    assert counts.sum() == 50 and counts[2] == 0 and np.abs(counts - 50 * model.initial).max() < 1
    assert len(set(seeds)) == 50 and min(seeds) == 1000
    for seed, start in zip(seeds, starts, strict=True):
        assert env.reset(seed=seed)[0][start] == 1.0


def test_behaviours_take_turns_within_each_start_state():
    starts = [5, 1, 5, 1, 5, 5, 1, 1]
    behaviours = make_dataset.take_turns(starts, ["a", "b"])
    for start in (1, 5):
        assert sorted(b for b, s in zip(behaviours, starts, strict=True) if s == start) == ["a", "a", "b", "b"]


def test_noise_is_gaussian_in_the_box_and_lognormal_on_probabilities():
    rng = np.random.default_rng(0)
    added = make_dataset.explore(np.full((100_000,), 0.3, np.float32), "tilt", 0.05, rng)
    assert added.dtype == np.float32
    assert added.mean() == pytest.approx(0.3, abs=1e-3) and added.std() == pytest.approx(0.05, rel=0.02)
    clipped = make_dataset.explore(np.array([-1.0, 1.0] * 500), "price", 0.5, rng)
    assert clipped.min() == -1 and clipped.max() == 1
    noisy = make_dataset.explore(np.array([[0.0, 0.25, 0.75]] * 50_000), "policy", 0.1, rng)
    assert not noisy[:, 0].any() and noisy.max() <= 1
    assert np.log(noisy[:, 1] / 0.25).std() == pytest.approx(0.1, rel=0.02)


@pytest.mark.parametrize("mode", MODES)
def test_episodes_of_a_data_set(mode: str) -> None:
    for kind, told in (("everything", "context"), ("limit", "cost")):
        env = EnsembleEnv(general_model(kind), action=mode)
        episode = make_dataset.play(env, make_agent("ad-hoc", env), 0.5, 3)
        assert all(action in env.action_space for action in episode["actions"])
        assert len(episode["infos"][told]) == T + 1 and episode["terminations"] == [False] * (T - 1) + [True]


def test_episodes_of_a_scenario_are_scored_in_the_unit_of_its_references():
    problem = ProblemSettings(scenario="tracking").build()
    env = make_dataset.make_env(problem, DatasetSettings())
    for kind, score in (("uncontrolled", 0.0), ("standard", 100.0)):
        episode = make_dataset.play(env, make_agent(kind, env), 0.0, seed=0)
        assert make_dataset.episodes_score([episode], problem.model) == pytest.approx(score, abs=0.01)


def test_a_croissant_description_names_files_with_their_digests(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "main_data.hdf5").write_bytes(b"abc")
    (tmp_path / NAME).touch()  # it does not describe itself
    found = describe_folder(tmp_path, "dp_ensemble/x/standard-v0", "words", 7, (-5.0, -1.0), 99.0)
    assert found == json.loads(json.dumps(found))
    (file,) = found["distribution"]
    assert file["@id"] == "data/main_data.hdf5" and file["contentSize"] == "3 B"
    assert file["sha256"] == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # of "abc", FIPS 180
    for table in found["recordSet"]:  # every row has every field, and nothing else
        names = {field["@id"] for field in table["field"]}
        assert all(set(row) == names for row in table["data"])
    values = {row["scores/name"]: row["scores/value"] for row in found["recordSet"][1]["data"]}
    assert values["episodes"] == 7 and values["reference return, optimum"] == -1.0


# ------------------------------------------------------------------ environments, also of other people's data sets
def test_data_sets_name_scenarios_that_everybody_has() -> None:
    assert not make_dataset.is_named(ProblemSettings(scenario="campus-day", loads=7))
    assert not make_dataset.is_named(ProblemSettings(scenario="my-own"))
    problem = ProblemSettings(scenario="campus-day", instance=1).build()
    env = make_dataset.make_env(problem, DatasetSettings(population="single", action="discrete"))
    again = recover_environment(SimpleNamespace(env_spec=EnvSpec.from_json(env.spec.to_json()))).unwrapped
    assert again.model.fingerprint == problem.model.fingerprint and again.population == 1
    assert again.action_mode == "discrete"
    portable = SimpleNamespace(env_spec=EnvSpec.from_json(portable_spec(campus_event(), action="tilt").to_json()))
    np.testing.assert_array_equal(recover_environment(portable).unwrapped.model.default, campus_event().default)


BOMB, called = f"{__name__}:bomb", []


def bomb(**_):
    called.append("boom")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"entry_point": BOMB}, "names the entry point .*:bomb', unlike the registered"),
        ({"entry_point": None}, "names the entry point None"),
        ({"vector_entry_point": BOMB}, "vector entry point"),
        ({"additional_wrappers": (WrapperSpec("x", BOMB, {}),)}, "names the wrapper"),
        ({"id": "theirs/Env-v0"}, "not registered"),
        ({"entry_point": "dp_ensemble_env.envs.spec:make_env"}, "of dp_ensemble/CampusEvent-tilt-v1 names"),
        ({"id": PORTABLE, "entry_point": BOMB}, "names the entry point .*:bomb"),
    ],
)
def test_whatever_else_a_description_names_is_not_run(changes, words):
    spec = EnvSpec.from_json(gymnasium.make("dp_ensemble/CampusEvent-tilt-v1").spec.to_json())
    for name, value in changes.items():
        setattr(spec, name, value)
    with pytest.raises(ValueError, match=words):
        recover_environment(SimpleNamespace(env_spec=spec))
    assert not called
    with pytest.raises(ValueError, match="does not say"):
        check_spec(None)
