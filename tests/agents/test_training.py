"""Training by name, in segments and in one go: seeds, budgets, resuming, keeping, and learners of one's own."""

from __future__ import annotations

import importlib
import json

import numpy as np
import pytest
from helpers import random_model
from oracles import general_model

importlib.import_module("stable_baselines3")

from dp_ensemble_env import scenarios  # noqa: E402
from dp_ensemble_env.agents import agent_names, evaluate, make_agent, register_agent  # noqa: E402
from dp_ensemble_env.agents.learners import LIBRARIES  # noqa: E402
from dp_ensemble_env.agents.loading import load_agent  # noqa: E402
from dp_ensemble_env.agents.settings import tuned_settings  # noqa: E402
from dp_ensemble_env.agents.train import (  # noqa: E402
    RunFolder,
    TrainingSettings,
    check_settings,
    register_learner,
    train,
)
from dp_ensemble_env.envs.ensemble import EnsembleEnv  # noqa: E402
from dp_ensemble_env.privacy.ledger import PrivacyLedger  # noqa: E402

OFF_POLICY = {"learning_starts": 100, "batch_size": 32, "gradient_steps": 1}
TINY = {
    "ppo": {"n_envs": 8, "batch_size": 144, "n_epochs": 2},
    "a2c": {"n_envs": 8},
    "trpo": {"n_envs": 8, "batch_size": 72},
    **dict.fromkeys(("sac", "td3", "tqc", "dqn"), OFF_POLICY),
    "recurrent-ppo": {"n_envs": 4, "n_steps": 18, "batch_size": 36, "n_epochs": 1},
    "apg": {"n_envs": 9},
}
STEPS = {"interval": 288, "steps": 1440}


def tiny(algo, steps=432, *, hyperparams=None, folder=None, resume=False, tensorboard=False, progress=None, **more):
    env = EnsembleEnv("campus-event", action=more.pop("action", "price"), privacy=more.pop("privacy", None))
    settings = TrainingSettings(steps=steps, hyperparams={**TINY[algo], **(hyperparams or {})}, **more)
    keep = None if folder is None else RunFolder(folder, resume, tensorboard)
    return train(algo, env, settings, keep=keep, progress=progress)


class CrashError(Exception):
    pass


def crash_after(steps):
    def progress(done, planned, score):
        if done > steps:
            raise CrashError

    return progress


# ------------------------------------------------------------------ every learner
@pytest.mark.parametrize("algo", TINY)
def test_every_learner_trains_resumes_and_is_loaded(algo, tmp_path):
    """A run that was cut ends as the whole one; the file without code plays as the learner did; memory included."""
    assert set(TINY) == {*LIBRARIES, "apg"}
    whole = tiny(algo, **STEPS, folder=tmp_path / "whole")
    assert 1200 < whole.steps <= 1440 and whole.steps == whole.curve[-1][0]
    assert all(score <= 100 + 1e-6 for _, score in whole.curve)
    with pytest.raises(CrashError):
        tiny(algo, **STEPS, folder=tmp_path / "cut", progress=crash_after(900))
    assert json.loads((tmp_path / "cut" / "results.json").read_text())["steps"] >= 900 - 288
    resumed = tiny(algo, **STEPS, folder=tmp_path / "cut", resume=True)
    assert resumed.curve == whole.curve
    results = json.loads((tmp_path / "cut" / "results.json").read_text())
    assert results["finished"] and results["evaluation"]["score"] == whole.curve[-1][1]
    again = tiny(algo, **STEPS, folder=tmp_path / "cut", resume=True)  # nothing is left to do
    assert again.curve == whole.curve
    env, loaded = EnsembleEnv("campus-event", action="price"), load_agent(tmp_path / "cut")
    outcome = evaluate(loaded, env)
    assert outcome.exact and outcome.score == pytest.approx(whole.curve[-1][1], abs=1e-9)
    assert (loaded.curve, loaded.steps, loaded.privacy) == (whole.curve, whole.steps, whole.privacy)
    assert "true dynamics" in outcome.privacy


@pytest.mark.parametrize("algo", ["ppo", "sac"])
def test_a_learner_of_tilts_chooses_cosines_and_goes_on_as_if_it_had_not_been_stopped(algo, tmp_path, campus):
    """Noise that is drawn once for a rollout is drawn after the generators were seeded."""
    plan = {"steps": 720, "interval": 144, "hyperparams": {"n_envs": 8, "cosines": 5}, "action": "tilt"}
    whole = tiny(algo, **plan, folder=tmp_path / "whole")
    with pytest.raises(CrashError):
        tiny(algo, **plan, folder=tmp_path / "cut", progress=crash_after(400))
    assert tiny(algo, **plan, folder=tmp_path / "cut", resume=True).curve == whole.curve
    env, again = EnsembleEnv(campus), load_agent(tmp_path / "cut")
    observation, _ = env.reset(seed=0)
    weights, action = whole.model.predict(observation, deterministic=True)[0], whole.predict(observation)[0]
    assert weights.shape == (5,) and action.any() and env.action_space.contains(action)
    np.testing.assert_allclose(again.predict(observation)[0], action, atol=1e-6)
    assert evaluate(again, env).score == pytest.approx(whole.curve[-1][1], abs=1e-6)


def test_a_memory_is_used_and_kept(tmp_path):
    env = EnsembleEnv("spot", action="price")
    settings = TrainingSettings(steps=384, interval=384, hyperparams={**TINY["recurrent-ppo"], "n_steps": 48})
    agent = train("recurrent-ppo", env, settings, keep=RunFolder(tmp_path / "run"))
    loaded, (observation, _) = load_agent(tmp_path / "run"), env.reset(seed=0)
    first, state = loaded.predict(observation, None, np.array([True]))
    second, _ = loaded.predict(observation, state, np.array([False]))
    assert state is not None and first != second  # the same observation, remembered
    np.testing.assert_array_equal(agent.predict(observation, None, np.array([True]))[0], first)


# ------------------------------------------------------------------ by name
def test_made_by_name_and_trained_are_the_same():
    """The settings of the scenario that the environment was made with apply in both."""
    env = EnsembleEnv("call", action="price")
    changes = {"n_envs": 2, "batch_size": 128, "n_epochs": 1}
    made = make_agent("ppo", env, steps=256, seed=1, interval=256, hyperparams=changes)
    assert made.curve == train("ppo", env, TrainingSettings(1, 256, interval=256, hyperparams=changes)).curve
    expected = tuned_settings("ppo", "mean-field", "price", "call")
    assert check_settings("ppo", env) == expected != tuned_settings("ppo", "mean-field", "price")
    assert check_settings("ppo", EnsembleEnv(scenarios.make("call"), action="price"), scenario="call") == expected
    assert check_settings("ppo", EnsembleEnv("call", "single", "price"))["n_envs"] == 128


def test_by_name_on_a_release(campus):
    env = EnsembleEnv(campus, "single", "price", privacy="dirichlet:k=50")
    agent = make_agent("a2c", env, steps=800, seed=1)
    released = EnsembleEnv(env.model, "single", "price")  # the release as if it were the truth
    again = train("a2c", released, TrainingSettings(1, 800))
    assert agent.curve == again.curve and agent.privacy == "that of one release"
    assert again.privacy == "none: learned from the true dynamics"
    assert train("a2c", env, TrainingSettings(1, 800)).curve == agent.curve


def test_learners_of_choices():
    env = EnsembleEnv(general_model("everything"), action="discrete")
    agent = make_agent("dqn", env, steps=40, seed=0, hyperparams={"learning_starts": 20})
    action, _ = agent.predict(env.reset(seed=0)[0])
    assert action in env.action_space and agent.curve
    with pytest.raises(ValueError, match="SAC cannot be trained here with these settings: .*only supports"):
        make_agent("sac", env, steps=1000, seed=0)


# ------------------------------------------------------------------ settings
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"learning_rat": 1e-3}, "did you mean 'learning_rate'"),
        ({"learning_rate": "cosine_1"}, "learning_rate must be finite, and of the type and sign of 'lin_0.003'"),
        ({"learning_rate": 0}, "learning_rate must be finite"),
        ({"learning_rate": float("nan")}, "learning_rate must be finite"),
        ({"n_envs": "abc"}, "n_envs must be finite"),
        ({"n_envs": 0}, "n_envs must be finite"),
        ({"policy": "NoPolicy"}, "A2C cannot be trained here with these settings: .*NoPolicy"),
        ({"policy_kwargs": {"net_arc": [3]}}, "A2C cannot be trained here with these settings: .*net_arc"),
    ],
)
def test_bad_settings_are_refused_before_there_is_a_folder(changes, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        tiny("a2c", hyperparams=changes, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_names_and_budgets_are_checked():
    with pytest.raises(ValueError, match="did you mean 'ppo'"):
        train("ppoo")
    with pytest.raises(ValueError, match="unknown algo 'standard'"):
        train("standard")
    with pytest.raises(ValueError, match="at least 144, one rollout"):
        tiny("ppo", steps=100)
    for wrong in ({"seed": -1}, {"steps": 0}, {"interval": 0}, {"target": 101}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            TrainingSettings(**wrong)


# ------------------------------------------------------------------ training
def test_same_seed_same_scores():
    first, second, other = tiny("ppo", seed=3), tiny("ppo", seed=3), tiny("ppo", seed=4)
    assert first.curve == second.curve
    assert first.curve != other.curve


def test_learning_raises_the_score_and_stops_at_the_target():
    agent = train("a2c", settings=TrainingSettings(steps=20_000, interval=5_000))
    assert agent.curve[-1][1] > agent.curve[0][1] + 20
    agent = train("a2c", settings=TrainingSettings(steps=50_000, interval=1_000, target=10))
    scores = [score for _, score in agent.curve]
    assert scores[-1] >= 10 and all(score < 10 for score in scores[:-1]) and agent.steps < 50_000


@pytest.mark.parametrize("algo", ["a2c", "dqn"])
def test_an_environment_of_several_instances_trains_on_them_and_scores_on_them(algo, tmp_path):
    models = [scenarios.make("spot", instance=i) for i in range(3)]
    env = EnsembleEnv(models, action="price")
    settings = TrainingSettings(steps=1152, interval=1152, hyperparams=TINY[algo])
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


def test_a_run_on_other_instances_is_another_run(tmp_path):
    models = [random_model(seed, n=4, horizon=3) for seed in range(3)]
    env = EnsembleEnv(models[0], action="price")
    changes = {"n_envs": 4, "n_steps": 3, "batch_size": 6, "n_epochs": 1}
    settings = TrainingSettings(0, 48, interval=24, hyperparams=changes)
    whole = train("ppo", env, settings, models=models)
    again = train("ppo", env, settings, models=models, keep=RunFolder(tmp_path / "run"))
    alone = train("ppo", env, settings)
    observation = np.full((1, 9), 0.3, np.float32)
    one, two, three = (agent.predict(observation)[0] for agent in (whole, again, alone))
    assert one == pytest.approx(two) and one != pytest.approx(three)
    with pytest.raises(ValueError, match="another configuration"):
        train("ppo", env, settings, keep=RunFolder(tmp_path / "run", resume=True))


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
    with pytest.raises(ValueError, match="no policy file"):
        load_agent(tmp_path / "missing")


# ------------------------------------------------------------------ in one go, and of one's own
def test_z_learning_is_trained_kept_and_scored_exactly(tmp_path, campus):
    env = EnsembleEnv(campus, "single")
    settings = TrainingSettings(seed=2, steps=20_000, hyperparams={"exploration": "passive"})
    agent = train("z-learning", env, settings, keep=RunFolder(tmp_path / "run"))
    loaded = load_agent(tmp_path / "run")
    made = make_agent("z-learning", env, steps=20_000, seed=2, exploration="passive")
    scores = [evaluate(one, env).score for one in (agent, loaded, made)]
    assert scores[0] == pytest.approx(scores[2], abs=1e-9) and scores[1] == scores[0] > 80
    assert evaluate(loaded, env).exact and loaded.steps == agent.steps <= 20_000
    with pytest.raises(ValueError, match="exploration must be finite, and of the type"):
        train("z-learning", env, TrainingSettings(hyperparams={"exploration": 3}), keep=RunFolder(tmp_path / "no"))
    assert not (tmp_path / "no").exists()


def test_a_learner_of_ones_own_is_trained_by_name(tmp_path, campus):
    @register_agent("coin", learns=True)
    def coin(env, steps=10, seed=0, sides=2):
        """Learn nothing, but take what a learner is given."""
        agent = make_agent("ad-hoc", env, shed=1.0 + sides)
        agent.told = (steps, seed, sides)
        return agent

    env = EnsembleEnv(campus, action="price")
    assert "coin" in agent_names(learns=True)
    agent = train("coin", env, TrainingSettings(3, 50, hyperparams={"sides": 4}), keep=RunFolder(tmp_path / "run"))
    assert agent.model.told == (50, 3, 4) and agent.steps == 50
    assert evaluate(load_agent(tmp_path / "run"), env).score == evaluate(agent, env).score == agent.curve[-1][1]
    with pytest.raises(ValueError, match="did you mean 'sides'"):
        train("coin", env, TrainingSettings(hyperparams={"side": 4}))


def test_a_learner_of_a_library_is_one_line(tmp_path):
    register_learner("cross-q", "sb3_contrib:CrossQ")
    env = EnsembleEnv("campus-event", action="price")
    changes = {"learning_starts": 20, "buffer_size": 500, "batch_size": 16, "n_envs": 4}
    agent = train("cross-q", env, TrainingSettings(steps=60, hyperparams=changes), keep=RunFolder(tmp_path / "run"))
    loaded = load_agent(tmp_path / "run")
    assert evaluate(loaded, env).score == pytest.approx(evaluate(agent, env).score, abs=1e-6)
