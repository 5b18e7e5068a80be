"""Offline data sets with the real Minari: what is stored, what it scores, and that it survives interruptions."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import behaviour_cloning
import minari
import numpy as np
import pytest
from helpers import write_meter
from minari.dataset._storages.hdf5_storage import HDF5Storage

from dp_ensemble_env.agents import evaluate, make_agent
from dp_ensemble_env.cli import main
from dp_ensemble_env.envs import EnsembleEnv
from dp_ensemble_env.experiments import datasets as make_dataset
from dp_ensemble_env.scenarios.problem import ProblemSettings

ROOT = Path(__file__).parents[2]
LADDER = ("uncontrolled", "ad-hoc", "medium", "standard")
NAME = "dp_ensemble/meanfield-tilt"


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*_):
        raise AssertionError("nothing may be downloaded")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """What the command of the page makes: all kinds of the mean field in tilt mode."""
    folder = tmp_path_factory.mktemp("minari")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MINARI_DATASETS_PATH": str(folder)}
    subprocess.run([sys.executable, "-m", "dp_ensemble_env", "dataset"], cwd=ROOT, env=environment, check=True)
    return folder


@pytest.fixture
def root(made, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(made))
    return made


@pytest.fixture
def empty(own_folder, monkeypatch):
    """A folder of the test's own, where Minari keeps its data sets."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(own_folder / "kept"))
    return own_folder / "kept"


def make(*arguments):
    assert main(["dataset", *map(str, arguments)]) == 0


def returns_of(dataset):
    return np.array([episode.rewards.sum() for episode in dataset.iterate_episodes()])


def replay(dataset):
    """Largest difference of observations and rewards when the stored actions are played from the stored seeds."""
    env = dataset.recover_environment()
    assert env.action_space == dataset.action_space and env.observation_space == dataset.observation_space
    worst = 0.0
    seeds = [one["seed"] for one in dataset.storage.get_episode_metadata(dataset.episode_indices)]
    for episode, seed in zip(dataset.iterate_episodes(), seeds, strict=True):
        observation, info = env.reset(seed=seed)
        worst = max(worst, np.abs(observation - episode.observations[0]).max())
        assert info["optimal_return"] == episode.infos["optimal_return"][0]
        for t, action in enumerate(episode.actions):
            observation, reward, terminated, truncated, info = env.step(action)
            off = np.abs(observation - episode.observations[t + 1]).max(), abs(reward - episode.rewards[t])
            worst = max(worst, *off, abs(info["discomfort"] - episode.infos["discomfort"][t + 1]))
            assert (terminated, truncated) == (episode.terminations[t], episode.truncations[t])
        assert terminated and len(episode.observations) == len(episode.actions) + 1
    return worst


# ------------------------------------------------------------------ the page
def test_page(run_page, shell_commands, shell, empty):
    make, imitate = shell_commands("minari")
    shell(make, cwd=ROOT)
    printed = shell(imitate, cwd=ROOT).stdout
    scores = [float(line.split()[3]) for line in printed.splitlines() if line.startswith("seed")]
    assert len(scores) == 3 and min(scores) >= 98.0
    run_page("minari")


def test_weighted_imitation_tells_good_episodes_from_bad(root, capsys):
    chosen = ["--dataset", f"{NAME}/mixed-v0", "--seeds", "0"]
    scores = []
    for more in ([], ["--advantage", "3"]):
        assert behaviour_cloning.main([*chosen, *more]) == 0
        scores.append(float(capsys.readouterr().out.split()[3]))
    assert scores[0] < 60 and scores[1] >= 85
    assert behaviour_cloning.main([*chosen, "--advantage", "-1"]) == 2
    capsys.readouterr()
    assert behaviour_cloning.main(["--dataset", "dp_ensemble/nowhere/standard-v0"]) == 2
    message = capsys.readouterr().err
    assert "nowhere/standard-v0" in message and "dp-ensemble dataset" in message and message.count("\n") == 1


# ------------------------------------------------------------------ scores
def test_data_sets_rank_as_their_agents_do(root):
    scores = {}
    for kind in make_dataset.KINDS:
        dataset = minari.load_dataset(f"{NAME}/{kind}-v0")
        scores[kind] = 100 * minari.get_normalized_score(dataset, returns_of(dataset)).mean()
        assert dataset.storage.metadata["episodes_score"] == pytest.approx(scores[kind], abs=1e-8)
    assert scores["uncontrolled"] == pytest.approx(0, abs=0.5)
    assert scores["uncontrolled"] + 10 < scores["ad-hoc"] < scores["medium"] - 10
    assert scores["medium"] == pytest.approx(50, abs=10)
    assert scores["standard"] == pytest.approx(99, abs=1)  # the noise costs one point
    assert scores["mixed"] == pytest.approx(np.mean([scores[kind] for kind in LADDER]), abs=1.5)


def test_reference_scores_are_the_ends_of_the_scale(root):
    """Against episodes played here, from every start state, without the functions that made the references."""
    dataset = minari.load_dataset(f"{NAME}/ad-hoc-v0")
    env = dataset.recover_environment()
    core, metadata = env.unwrapped, dataset.storage.metadata
    for policy, expected in ((None, metadata["ref_min_score"]), (core.optimal_policy, metadata["ref_max_score"])):
        mean = 0.0
        for state, weight in enumerate(core.model.initial):
            env.reset(options={"state": state})
            for t in range(core.model.horizon):
                action = np.zeros(20) if policy is None else core.encode_policy(policy[t], dtype=np.float64)
                mean += weight * env.step(action)[1]
        assert mean == pytest.approx(expected, abs=1e-6)


# ------------------------------------------------------------------ what is stored
def test_data_sets_say_how_they_were_made_and_replay_gives_the_stored_rewards(root):
    assert sorted(minari.list_local_datasets()) == sorted(f"{NAME}/{kind}-v0" for kind in make_dataset.KINDS)
    for kind in make_dataset.KINDS:
        dataset = minari.load_dataset(f"{NAME}/{kind}-v0")
        metadata = dataset.storage.metadata
        episodes = list(dataset.iterate_episodes())
        distinct = len({one.observations.tobytes() + one.actions.tobytes() for one in episodes})
        assert dataset.total_episodes == 200 and dataset.total_steps == 200 * 18
        assert metadata["distinct_episodes"] == distinct and f"{distinct} of 200 episodes" in metadata["description"]
        assert "rewards reveal the transition matrix" in metadata["description"]
        assert json.loads(dataset.env_spec.to_json())["kwargs"] == {
            "scenario": "campus-event", "instance": 0, "population": "mean-field", "action": "tilt",
            "reward": "dollars",
        }  # fmt: skip
        played = [one["behaviour"] for one in dataset.storage.get_episode_metadata(dataset.episode_indices)]
        if kind == "mixed":
            assert {name: played.count(name) for name in LADDER} == dict.fromkeys(LADDER, 50)
        if kind == "medium":
            assert 50 <= metadata["behaviour_scores"]["medium"] < 65
            assert metadata["learner"] == "PPO" and "PPO, stopped" in metadata["description"]
        if kind != "mixed":
            assert set(played) == {kind}
            assert distinct == (9 if kind == "uncontrolled" else 200)
        assert replay(dataset) == 0.0
        for episode in episodes:
            parts = episode.infos["utility"] - episode.infos["discomfort"]
            np.testing.assert_array_equal(parts[1:], episode.rewards)


def test_medium_of_a_scenario_is_apg_stopped_at_fifty(empty):
    make("--scenario", "campus-day", "--kinds", "medium", "--episodes", 3, "--name", "day")
    data = minari.load_dataset("dp_ensemble/day/medium-v0")
    assert 50 <= data.storage.metadata["behaviour_scores"]["medium"] < 70
    assert data.storage.metadata["learner"] == "apg" and "apg, stopped" in data.storage.metadata["description"]
    assert replay(data) == 0.0


# ------------------------------------------------------------------ privacy
def test_private_data_set_recovers_its_release_and_states_its_worth(empty):
    make("--privacy", "dirichlet:k=50,floor=0.05", "--release-seed", 3, "--kinds", "standard", "--episodes", 20)
    dataset = minari.load_dataset("dp_ensemble/meanfield-tilt-k50-floor0_05-release3/standard-v0")
    assert replay(dataset) == 0.0
    env = dataset.recover_environment()
    assert env.spec.kwargs["action"] == "tilt"
    statement = str(env.unwrapped.ledger.statement())
    assert "-approximate differential privacy for 1 release at k=50" in statement
    assert dataset.storage.metadata["description"].endswith(statement)
    result = evaluate(make_agent("uncontrolled", env), env)
    assert minari.get_normalized_score(dataset, result.mean_return) == pytest.approx(0, abs=1e-9)
    again = EnsembleEnv("campus-event", privacy="dirichlet:k=50,floor=0.05", release_seed=3)
    np.testing.assert_array_equal(env.unwrapped.release.matrix, again.release.matrix)


def test_meter_data_set_needs_no_meter_file(empty, own_folder, capsys):
    meter = write_meter(own_folder / "meter.csv")
    options = ("--meter", meter, "--unit", "kW", "--stamp", "start", "--penalty", 5, "--episodes", 10,
               "--kinds", "ad-hoc", "standard")  # fmt: skip
    make(*options, "--privacy", "dirichlet:k=50,floor=0.01")
    make(*options)
    assert "disclose the transition matrix" in capsys.readouterr().err
    true = ProblemSettings(meter=str(meter), unit="kW", stamp="start", penalty=5.0).build().model
    meter.unlink()
    dataset = minari.load_dataset("dp_ensemble/meanfield-tilt-penalty5-meter/standard-v0")
    assert replay(dataset) == 0.0
    assert np.array_equal(dataset.recover_environment().unwrapped.model.default, true.default)
    dataset = minari.load_dataset("dp_ensemble/meanfield-tilt-penalty5-meter-k50-floor0_01/standard-v0")
    assert replay(dataset) == 0.0
    env = dataset.recover_environment()
    assert env.unwrapped.release.seeding == "os-entropy" and env.unwrapped.release.k == 50
    assert "seeded: repeatable" not in dataset.storage.metadata["description"]
    secrets = [value for value in true.default[true.default > 0] if len(repr(float(value))) > 12]
    assert len(secrets) > 50
    # Neither the matrix nor the counts nor the folder of this machine are in the files.
    for file in (empty / "dp_ensemble" / "meanfield-tilt-penalty5-meter-k50-floor0_01").rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert str(own_folder).encode() not in content
            for value in secrets:
                assert repr(float(value)).encode() not in content and value.tobytes() not in content
    kinds = [minari.load_dataset(f"dp_ensemble/meanfield-tilt-penalty5-meter-k50-floor0_01/{kind}-v0") for kind in
             ("ad-hoc", "standard")]  # fmt: skip
    assert kinds[0].env_spec == kinds[1].env_spec  # one release for both


# ------------------------------------------------------------------ nothing is lost
def test_existing_data_sets_are_kept_unless_forced(empty, capsys):
    settings = ["--kinds", "ad-hoc", "--name", "x", "--noise", "0", "--episodes"]
    make(*settings, 4)
    assert main(["dataset", *settings, "5"]) == 2
    assert "--force" in capsys.readouterr().err
    assert minari.load_dataset("dp_ensemble/x/ad-hoc-v0").total_episodes == 4
    make(*settings, 5, "--force")
    assert minari.load_dataset("dp_ensemble/x/ad-hoc-v0").total_episodes == 5
    assert [path.name for path in empty.iterdir()] == ["dp_ensemble"]


def test_interrupted_writing_leaves_the_former_data_set(empty, monkeypatch, capsys):
    settings = ["--kinds", "ad-hoc", "--name", "x", "--noise", "0", "--episodes", "4"]
    make(*settings)
    whole = HDF5Storage.update_episodes

    def interrupted(storage, episodes):
        whole(storage, list(episodes)[:2])
        raise KeyboardInterrupt

    monkeypatch.setattr(HDF5Storage, "update_episodes", interrupted)
    assert main(["dataset", *settings, "--force"]) == 130
    assert main(["dataset", "--kinds", "uncontrolled", "--name", "x"]) == 130
    assert "complete" in capsys.readouterr().err
    monkeypatch.undo()
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(empty))
    assert list(minari.list_local_datasets()) == ["dp_ensemble/x/ad-hoc-v0"]
    assert replay(minari.load_dataset("dp_ensemble/x/ad-hoc-v0")) == 0.0
    assert [path.name for path in empty.iterdir()] == ["dp_ensemble"]


def test_killed_process_leaves_no_half_data_set(empty):
    command = [sys.executable, "-m", "dp_ensemble_env", "dataset", "--kinds", "ad-hoc", "--episodes", "3000"]
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        deadline = time.monotonic() + 300
        while not list(empty.glob(".making-*/dp_ensemble/*/*/data/main_data.hdf5")):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert list(empty.glob(".making-*"))  # it was at work
    assert minari.list_local_datasets() == {}
    with pytest.raises(FileNotFoundError):
        minari.load_dataset("dp_ensemble/meanfield-tilt/ad-hoc-v0")
    make("--kinds", "ad-hoc", "--episodes", 2)
    assert minari.load_dataset("dp_ensemble/meanfield-tilt/ad-hoc-v0").total_episodes == 2


# ------------------------------------------------------------------ learning
