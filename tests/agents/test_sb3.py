"""Learners: settings, features, training, resuming, loading."""

from __future__ import annotations

import copy
import importlib
import json
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from helpers import ROOT

torch = importlib.import_module("torch")
stable_baselines3, sb3_contrib = map(importlib.import_module, ("stable_baselines3", "sb3_contrib"))

from dp_ensemble_env import scenarios  # noqa: E402
from dp_ensemble_env.agents import evaluate, make_agent  # noqa: E402
from dp_ensemble_env.agents.features import ClockFeatures, CosineWeights  # noqa: E402
from dp_ensemble_env.agents.hyperparams import (  # noqa: E402
    ALGORITHMS,
    BY_SCENARIO,
    HYPERPARAMS,
    CosineActions,
    changes_for,
    cosine_basis,
    cosine_space,
    hyperparameters,
    tilts_of_weights,
)
from dp_ensemble_env.agents.learners import algorithm_class, price_list, settings_of, training_env  # noqa: E402
from dp_ensemble_env.agents.sb3 import RunFolder, TrainingSettings, load_agent, safe_path, train  # noqa: E402
from dp_ensemble_env.envs import environment_ids  # noqa: E402
from dp_ensemble_env.envs.ensemble import EnsembleEnv  # noqa: E402
from dp_ensemble_env.envs.sb3 import EnsembleVecEnv  # noqa: E402
from dp_ensemble_env.privacy.ledger import PrivacyLedger  # noqa: E402

MEAN_FIELD = "mean-field"
PRICE, TILT = "dp_ensemble/CampusEvent-v1", "dp_ensemble/CampusEvent-tilt-v1"
TINY = {
    "ppo": {"n_envs": 8, "batch_size": 144, "n_epochs": 2},
    "a2c": {"n_envs": 8},
    "trpo": {"n_envs": 8, "batch_size": 72},
    "sac": {"learning_starts": 100, "batch_size": 32, "gradient_steps": 1},
    "td3": {"learning_starts": 100, "batch_size": 32, "gradient_steps": 1},
    "tqc": {"learning_starts": 100, "batch_size": 32, "gradient_steps": 1},
    "dqn": {"learning_starts": 100, "batch_size": 32, "gradient_steps": 1},
    "apg": {"n_envs": 9},
}


def tiny(algo, steps=432, *, hyperparams=None, folder=None, resume=False, tensorboard=False, progress=None, **more):
    env = EnsembleEnv("campus-event", action="price", privacy=more.pop("privacy", None))
    settings = TrainingSettings(total_steps=steps, hyperparams={**TINY[algo], **(hyperparams or {})}, **more)
    keep = None if folder is None else RunFolder(folder, resume, tensorboard)
    return train(algo, env, settings, keep=keep, progress=progress)


class CrashError(Exception):
    pass


def crash_after(steps):
    def progress(done, planned, score):
        if done > steps:
            raise CrashError

    return progress


# ------------------------------------------------------------------ settings
@pytest.mark.parametrize("algo", sorted(set(ALGORITHMS) - {"apg"}))
def test_tuned_settings_are_arguments_of_the_algorithm(algo):
    kind = algorithm_class(algo)
    for (population, action), settings in HYPERPARAMS[algo].items():
        assert settings_of(kind, algo, population, action, settings) == settings
        assert settings["gamma"] == 1.0  # the score is undiscounted
        if "n_steps" in settings and "batch_size" in settings:
            assert settings["n_envs"] * settings["n_steps"] % settings["batch_size"] == 0


def test_settings_of_a_scenario_fit_the_algorithm_and_whole_episodes():
    for (name, action), changes in BY_SCENARIO["ppo"].items():
        settings = settings_of(algorithm_class("ppo"), "ppo", MEAN_FIELD, action, changes)
        assert settings["n_steps"] == scenarios.make(name).horizon
        assert settings["n_envs"] * settings["n_steps"] % settings["batch_size"] == 0
    pages = {page.stem for page in (ROOT / "docs" / "scenarios").glob("*.md")}  # other tests register scenarios, too
    assert {name for name, _ in BY_SCENARIO["ppo"]} == pages - {"campus-event"}


def test_settings_are_copies_and_fall_back_to_the_nearest():
    before = copy.deepcopy(HYPERPARAMS)
    hyperparameters("ppo", MEAN_FIELD, "price")["policy_kwargs"]["net_arch"] = "spoiled"
    assert before == HYPERPARAMS
    table = HYPERPARAMS["ppo"]
    rows = hyperparameters("ppo", 100, "policy")
    assert {**rows, "cosines": 6} == table[MEAN_FIELD, "tilt"] and "cosines" not in rows  # which stand for tilts
    assert hyperparameters("sac", "single", "price") == HYPERPARAMS["sac"][MEAN_FIELD, "price"]
    assert hyperparameters("ppo", 1, "price") == table["single", "price"] != table[MEAN_FIELD, "price"]
    with pytest.raises(ValueError, match="price mode only"):
        hyperparameters("dqn", MEAN_FIELD, "tilt")


def test_zoo_form():
    module = importlib.import_module("dp_ensemble_env.agents.hyperparams.ppo_tilt")
    settings = module.hyperparams[TILT]
    home = "dp_ensemble_env.agents.hyperparams"
    assert settings["env_wrapper"] == [{f"{home}.CosineActions": {"cosines": 6}}]
    assert settings["policy"] == "MlpPolicy" and "cosines" not in settings
    assert settings["policy_kwargs"]["features_extractor_class"] is ClockFeatures
    assert "clock" not in settings and settings["n_timesteps"] == HYPERPARAMS["ppo"][MEAN_FIELD, "tilt"]["n_timesteps"]
    wrappers = importlib.import_module("dp_ensemble_env.agents.hyperparams.dqn_price").hyperparams[PRICE]["env_wrapper"]
    bins = HYPERPARAMS["dqn"][MEAN_FIELD, "price"]["bins"]
    assert wrappers == [{"gymnasium.wrappers.DiscretizeAction": {"bins": bins}}]


def test_zoo_settings_are_those_of_the_scenario():
    found = importlib.import_module("dp_ensemble_env.agents.hyperparams.ppo_price").hyperparams
    for name in scenarios.BUILT_IN:
        env_id = f"dp_ensemble/{name.title().replace('-', '')}-v1"
        settings = found[env_id]
        expected = hyperparameters("ppo", MEAN_FIELD, "price") | changes_for("ppo", name, "price")
        assert {key: settings[key] for key in expected} == expected and settings["env_wrapper"] == []
    tilts = importlib.import_module("dp_ensemble_env.agents.hyperparams.ppo_tilt").hyperparams
    for name in ("spot", "feeder"):  # a context and a coupling are part of what the clock's features keep
        env_id = f"dp_ensemble/{name.title()}-tilt-v1"
        kwargs = tilts[env_id]["policy_kwargs"]
        space = gymnasium.make(env_id).observation_space
        kwargs["features_extractor_class"](space, **kwargs["features_extractor_kwargs"])
        assert kwargs["features_extractor_kwargs"]["horizon"] == scenarios.make(name).horizon


def test_what_rl_zoo3_writes_into_the_settings_does_not_come_back():
    """It parses the learning rate in place, and a second experiment in the process finds the module imported."""
    for name in ("ppo_tilt", "dqn_price", "sac_price"):
        module = importlib.import_module(f"dp_ensemble_env.agents.hyperparams.{name}")
        action = name.partition("_")[2]
        before = copy.deepcopy(dict(module.hyperparams))
        modes = {env_id: gymnasium.spec(env_id).kwargs["action"] for env_id in environment_ids()}
        assert set(before) == {env_id for env_id, mode in modes.items() if mode == action}
        assert len(before) >= len(scenarios.BUILT_IN)
        for settings in (module.hyperparams[next(iter(before))], *module.hyperparams.values()):
            settings["learning_rate"] = print
            settings["policy_kwargs"]["net_arch"] = "spoiled"
            settings["env_wrapper"].clear()
            del settings["policy"]
        assert dict(module.hyperparams) == before and "a/b-v0" not in module.hyperparams


def test_which_algorithms_take_the_environment_as_it_is():
    """The page's sentence: those for continuous actions do, those that choose from a list take the discrete ids."""
    small, of_list = {"buffer_size": 100}, {"buffer_size": 100, "learning_starts": 20, "batch_size": 8}
    free = dict.fromkeys(("PPO", "A2C", "TRPO", "ARS"), {})
    free |= dict.fromkeys(("DDPG", "SAC", "TD3", "TQC", "CrossQ"), small)
    page = (ROOT / "docs" / "libraries" / "stable_baselines3.md").read_text()
    for name, settings in free.items():
        kind = getattr(stable_baselines3, name, None) or getattr(sb3_contrib, name)
        assert name in page
        learner = kind("MlpPolicy", gymnasium.make(TILT), **settings)
        assert learner.predict(np.zeros(25, np.float32))[0].shape == (20,)
    for kind in (stable_baselines3.DQN, sb3_contrib.QRDQN):
        with pytest.raises(AssertionError, match="only supports"):
            kind("MlpPolicy", gymnasium.make(PRICE))
        learner = kind("MlpPolicy", gymnasium.make("dp_ensemble/CampusEvent-discrete-v1"), **of_list)
        assert learner.learn(40).num_timesteps == 40


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="did you mean 'learning_rate'"):
        tiny("ppo", hyperparams={"learning_rat": 1e-3})
    with pytest.raises(ValueError, match="did you mean 'ppo'"):
        train("ppoo")
    with pytest.raises(ValueError, match="'lin_0.001'"):
        tiny("ppo", hyperparams={"learning_rate": "cosine_1"})
    with pytest.raises(ValueError, match="at least 144, one rollout"):
        tiny("ppo", steps=100)


def test_rl_zoo3_finds_a_module_for_every_pair():
    for algo, table in HYPERPARAMS.items():
        if algo == "apg":
            continue  # ours alone; rl_zoo3 knows only the algorithms of Stable-Baselines3
        for action in {action for _, action in table}:
            module = importlib.import_module(f"dp_ensemble_env.agents.hyperparams.{algo}_{action}")
            steps = hyperparameters(algo, MEAN_FIELD, action)["n_timesteps"]
            assert module.hyperparams[TILT if action == "tilt" else PRICE]["n_timesteps"] == steps


def test_settings_can_be_read_without_torch():
    code = (
        "import sys, dp_ensemble_env.agents.hyperparams, dp_ensemble_env.agents.sb3; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ------------------------------------------------------------------ what the learners see and earn
def test_clock_features_are_one_hot_time_and_occupancy(campus):
    env = EnsembleEnv(campus, action="price")
    features = ClockFeatures(env.observation_space, campus.horizon)
    observation, _ = env.reset(seed=0)
    for t in range(campus.horizon):
        row = features(torch.as_tensor(observation)[None]).numpy()[0]
        np.testing.assert_array_equal(row[: campus.horizon], np.eye(campus.horizon)[t])
        np.testing.assert_array_equal(row[campus.horizon :], observation[: campus.n_states])
        observation, *_ = env.step(np.array([0.3], np.float32))


@pytest.mark.parametrize("bins", [None, 21])
def test_learners_earn_points(campus, bins):
    settings = {"n_envs": 3} if bins is None else {"n_envs": 3, "bins": bins}
    scaled = training_env(EnsembleEnv(campus, action="price"), settings)
    plain = EnsembleVecEnv(3, model=campus, action="price")
    for env in (plain, scaled):
        env.seed(0)
        env.reset()
    price = 0.5 if bins is None else price_list(settings)[15]
    actions = np.full((3, 1), price, np.float32)
    for _ in range(campus.horizon):
        expected = plain.step(actions)[1]
        found = scaled.step(actions if bins is None else np.full(3, 15))[1]
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("m", [1, 2, 13, 20])
def test_cosines_hold_all_tilts_slowest_first(m):
    levels, basis = (2 * np.arange(m) + 1) / (2 * m), cosine_basis(m, m)
    for j in range(m):
        wave = np.cos(np.pi * j * levels)
        np.testing.assert_allclose(basis[j], wave / np.linalg.norm(wave), atol=1e-6)
    tilts = np.random.default_rng(0).choice([-0.5, 0.5], (50, m))
    tilts[0] = 0.5
    weights = (tilts @ basis.T).astype(np.float32)
    assert (np.abs(weights) <= cosine_space(m, m).high * (1 + 1e-6)).all()
    np.testing.assert_allclose(tilts_of_weights(weights, m), tilts, atol=1e-5)
    assert np.abs(tilts_of_weights(9.0 * weights, m)).max() == 1.0  # cut to the box
    few, small = min(4, m), weights / m
    left = np.hstack([small[:, :few], np.zeros((50, m - few), np.float32)])
    np.testing.assert_allclose(tilts_of_weights(small[:, :few], m), tilts_of_weights(left, m), atol=1e-6)
    assert cosine_space(4, m).shape == (few,)


def test_weights_of_cosines_move_the_ensemble_as_their_tilts_do(campus):
    plain, waves = EnsembleVecEnv(3, TILT), CosineWeights(EnsembleVecEnv(3, TILT), 6)
    single = CosineActions(gymnasium.make(TILT), cosines=6)
    assert waves.action_space == single.action_space == cosine_space(6, 20)
    for env in (plain, waves):
        env.seed(0)
        env.reset()
    single.reset(seed=0)
    weights = np.random.default_rng(1).uniform(-0.5, 0.5, (3, 6)).astype(np.float32)
    for _ in range(campus.horizon - 1):
        expected, found, one = plain.step(tilts_of_weights(weights, 20)), waves.step(weights), single.step(weights[0])
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_array_equal(found[1], expected[1])
        np.testing.assert_allclose(one[0], expected[0][0], atol=1e-6)


def test_a_learner_of_cosines_acts_in_tilts(tmp_path):
    env, changes = EnsembleEnv("campus-event"), {**TINY["ppo"], "cosines": 5}
    agent = train("ppo", env, TrainingSettings(total_steps=288, hyperparams=changes), keep=RunFolder(tmp_path / "run"))
    observation, _ = env.reset(seed=0)
    weights, _ = agent.model.predict(observation, deterministic=True)
    action, _ = agent.predict(observation)
    np.testing.assert_array_equal(action, tilts_of_weights(weights, 20))
    assert weights.shape == (5,) and action.any() and env.action_space.contains(action)
    again = load_agent(tmp_path / "run")
    np.testing.assert_array_equal(again.predict(observation)[0], action)
    assert again.curve[-1][1] == pytest.approx(evaluate(again, env).score)
    agent.model.save(tmp_path / "model.zip")
    config = json.dumps({"algo": "ppo", "hyperparams": changes})
    (tmp_path / "config.json").write_text(config)
    foreign = load_agent(tmp_path / "model.zip", tmp_path, allow_code=True)
    np.testing.assert_array_equal(foreign.predict(observation)[0], action)
    with pytest.raises(ValueError, match="cosines stand for tilts"):
        train("ppo", EnsembleEnv("campus-event", action="price"), TrainingSettings(hyperparams={"cosines": 5}))
    with pytest.raises(ValueError, match="moves nothing"):
        train("ppo", EnsembleEnv("campus-event"), TrainingSettings(hyperparams={"cosines": 1}))
    kind = algorithm_class("ppo")
    assert "cosines" not in settings_of(kind, "ppo", MEAN_FIELD, "tilt", {"cosines": 0})


@pytest.mark.parametrize("algo", ["ppo", "sac", "tqc"])
def test_a_learner_of_tilts_goes_on_as_if_it_had_not_been_stopped(algo, tmp_path):
    """Noise that is drawn once for a rollout is drawn after the generators were seeded."""
    env, changes = EnsembleEnv("campus-event"), {**TINY[algo], "n_envs": 8}
    settings = TrainingSettings(total_steps=720, interval=144, hyperparams=changes)
    whole = train(algo, env, settings, keep=RunFolder(tmp_path / "whole"))
    with pytest.raises(CrashError):
        train(algo, env, settings, keep=RunFolder(tmp_path / "cut"), progress=crash_after(400))
    again = train(algo, env, settings, keep=RunFolder(tmp_path / "cut", resume=True))
    assert again.curve == whole.curve


def test_prices_are_the_centres_of_the_discretising_wrapper():
    wrapper = gymnasium.wrappers.DiscretizeAction(EnsembleEnv("campus-event", action="price"), bins=21)
    prices = price_list({"bins": 21})
    for index in range(21):
        np.testing.assert_array_equal(wrapper.action(index), prices[[index]])
    assert abs(prices[10]) < 1e-7  # doing nothing is among the choices


# ------------------------------------------------------------------ training
@pytest.mark.parametrize("algo", ALGORITHMS)
def test_every_learner_trains_within_its_budget_and_below_the_optimum(algo, campus):
    agent = tiny(algo, steps=500)
    assert 400 < agent.steps <= 500 and agent.steps == agent.curve[-1][0]
    assert all(score <= 100 + 1e-6 for _, score in agent.curve)
    outcome = evaluate(agent, EnsembleEnv(campus, action="price"))
    assert outcome.exact and outcome.score == pytest.approx(agent.curve[-1][1], abs=1e-9)
    assert "true dynamics" in outcome.privacy


def test_same_seed_same_scores():
    first, second, other = tiny("ppo", seed=3), tiny("ppo", seed=3), tiny("ppo", seed=4)
    assert first.curve == second.curve
    assert first.curve != other.curve


def test_learning_raises_the_score():
    agent = train("a2c", settings=TrainingSettings(total_steps=20_000, interval=5_000))
    assert agent.curve[-1][1] > agent.curve[0][1] + 20


def test_stops_at_the_target():
    agent = train("a2c", settings=TrainingSettings(total_steps=50_000, interval=1_000, target_score=10))
    scores = [score for _, score in agent.curve]
    assert scores[-1] >= 10 and all(score < 10 for score in scores[:-1]) and agent.steps < 50_000


def test_by_name_on_a_release(campus):
    env = EnsembleEnv(campus, "single", "price", privacy="dirichlet:k=50")
    agent = make_agent("a2c", env, steps=800, seed=1)
    released = EnsembleEnv(env.model, "single", "price")  # the release as if it were the truth
    again = train("a2c", released, TrainingSettings(1, 800))
    assert agent.curve == again.curve and agent.privacy == "that of one release"
    assert again.privacy == "none: learned from the true dynamics"
    assert train("a2c", env, TrainingSettings(1, 800)).curve == agent.curve


def test_training_that_takes_long_says_so(monkeypatch, capsys):
    monkeypatch.setattr("dp_ensemble_env.tools.console.SILENT", 0.0)
    # Long enough for the watching thread to wake up, however quick the machine is.
    make_agent("a2c", EnsembleEnv("campus-event", action="price"), steps=50_000, seed=0)
    assert "training a2c" in capsys.readouterr().err
    make_agent("a2c", EnsembleEnv("campus-event", action="price"), steps=2_304, seed=0, progress=lambda *news: None)
    assert not capsys.readouterr().err


@pytest.mark.parametrize("bins", [None, 21])
def test_each_episode_of_training_draws_one_of_several_instances(bins):
    models = [scenarios.make("spot", instance=i) for i in range(3)]
    settings = {"n_envs": 20} if bins is None else {"n_envs": 20, "bins": bins}
    env = training_env(EnsembleEnv(models[0], action="price"), settings, models)
    env.seed(0)
    env.reset()
    drawn = [[info["instance"] for info in env.reset_infos]]
    for _ in range(models[0].horizon):
        _, _, dones, infos = env.step(np.zeros((20, 1), np.float32) if bins is None else np.full(20, 10))
    assert dones.all() and [info["instance"] for info in infos] == drawn[0]
    env.reset()
    drawn.append([info["instance"] for info in env.reset_infos])
    assert set(drawn[0]) == {0, 1, 2} and drawn[0] != drawn[1]


@pytest.mark.parametrize("algo", ["a2c", "dqn"])
def test_an_environment_of_several_instances_trains_on_them_and_scores_on_them(algo, tmp_path):
    models = [scenarios.make("spot", instance=i) for i in range(3)]
    env = EnsembleEnv(models, action="price")
    settings = TrainingSettings(total_steps=1152, interval=1152, hyperparams=TINY[algo])
    agent = train(algo, env, settings, keep=RunFolder(tmp_path / "run"))
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["instances"] == [model.fingerprint for model in models]
    again = train(algo, EnsembleEnv(models[0], action="price"), settings, models=models)
    observation, _ = env.reset(seed=0)
    np.testing.assert_array_equal(agent.predict(observation)[0], again.predict(observation)[0])
    apart = [evaluate(agent, EnsembleEnv(model, action="price"), episodes=170) for model in models]
    whole = evaluate(agent, env)
    assert whole.episodes == 3 * 170
    assert min(one.score for one in apart) - 5 <= whole.score <= max(one.score for one in apart) + 5
    assert evaluate(make_agent("uncontrolled", env), env).score == pytest.approx(0.0, abs=1e-9)


# ------------------------------------------------------------------ run folders
@pytest.mark.parametrize("algo", ALGORITHMS)
def test_resumed_run_equals_the_uninterrupted_one(algo, tmp_path):
    whole = tiny(algo, steps=1440, interval=288, folder=tmp_path / "whole")
    with pytest.raises(CrashError):
        tiny(algo, steps=1440, interval=288, folder=tmp_path / "cut", progress=crash_after(900))
    assert json.loads((tmp_path / "cut" / "results.json").read_text())["steps"] >= 900 - 288
    resumed = tiny(algo, steps=1440, interval=288, folder=tmp_path / "cut", resume=True)
    assert resumed.curve == whole.curve
    results = json.loads((tmp_path / "cut" / "results.json").read_text())
    assert results["finished"] and results["evaluation"]["score"] == whole.curve[-1][1]
    again = tiny(algo, steps=1440, interval=288, folder=tmp_path / "cut", resume=True)  # nothing is left to do
    assert again.curve == whole.curve


def test_folder_holds_what_is_needed_and_refuses_another_run(tmp_path):
    settings = {"privacy": "dirichlet:k=50,floor=0.01"}
    tiny("a2c", folder=tmp_path / "run", tensorboard=True, **settings)
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {
        "config.json", "versions.json", "ledger.json", "results.json", "checkpoint.safetensors",
        "checkpoint-older.safetensors", "policy.safetensors", "tensorboard", ".lock",
    }  # fmt: skip
    assert any((tmp_path / "run" / "tensorboard").iterdir())
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["seed"], config["action"], config["hyperparams"]["n_envs"]) == (0, "price", 8)
    assert "stable-baselines3" in json.loads((tmp_path / "run" / "versions.json").read_text())
    assert PrivacyLedger.from_json((tmp_path / "run" / "ledger.json").read_text()).releases == 1
    with pytest.raises(ValueError, match="already holds a run"):
        tiny("a2c", folder=tmp_path / "run", **settings)
    with pytest.raises(ValueError, match=r"seed is 0, not 1, hyperparams\.gae_lambda is .*, not 0\.5"):
        tiny("a2c", folder=tmp_path / "run", resume=True, seed=1, hyperparams={"gae_lambda": 0.5}, **settings)


# ------------------------------------------------------------------ loading
@pytest.mark.parametrize("algo", ALGORITHMS)
def test_loaded_agent_acts_as_before(algo, tmp_path, campus):
    agent = tiny(algo, folder=tmp_path / "one")
    loaded = load_agent(tmp_path / "one")
    env = EnsembleEnv(campus, action="price")
    assert evaluate(loaded, env).score == evaluate(agent, env).score
    assert (loaded.curve, loaded.steps, loaded.privacy) == (agent.curve, agent.steps, agent.privacy)
    named = make_agent(algo, env, path=tmp_path / "one" / "policy.safetensors")
    assert evaluate(named, env).score == agent.curve[-1][1]


def foreign(folder, algo="a2c"):
    """Leave a model as Stable-Baselines3 saves it."""
    folder.mkdir(parents=True)
    agent = tiny(algo)
    agent.model.save(folder / "model.zip")
    return agent


def test_files_outside_the_folder_are_refused(tmp_path):
    runs, elsewhere = tmp_path / "runs", tmp_path / "elsewhere"
    foreign(elsewhere)
    runs.mkdir()
    (runs / "link").symlink_to(elsewhere)
    (runs / "folder").mkdir()
    (runs / "folder" / "model.zip").symlink_to(elsewhere / "model.zip")
    for path in (elsewhere, runs / ".." / "elsewhere" / "model.zip", runs / "link", runs / "folder"):
        with pytest.raises(ValueError, match="lies outside"):
            load_agent(path, runs, algo="a2c", allow_code=True)
    assert load_agent(elsewhere, runs, algo="a2c", allow_code=True, allow_outside=True).name == "a2c"
    with pytest.raises(ValueError, match="no model file"):
        load_agent(runs / "missing", runs)
    assert safe_path(runs / "a" / ".." / "b", runs) == (runs / "b").resolve()
