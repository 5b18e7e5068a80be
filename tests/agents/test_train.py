"""Training by name, in segments and in one go: seeds, budgets, resuming, keeping, and learners of one's own."""

from __future__ import annotations

import json

import numpy as np
import pytest
from helpers import random_model
from oracles import general_model

from dp_ensemble_env import scenarios
from dp_ensemble_env.agents import evaluate, make_agent
from dp_ensemble_env.agents.learners import LIBRARIES
from dp_ensemble_env.agents.loading import load_agent
from dp_ensemble_env.agents.train import RunFolder, TrainingSettings, register_learner, train
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.privacy.ledger import PrivacyLedger

OFF_POLICY = {"learning_starts": 100, "batch_size": 32, "gradient_steps": 1}
TINY = {
    "ppo": {"n_envs": 8, "batch_size": 144, "n_epochs": 2},
    "a2c": {"n_envs": 8},
    "trpo": {"n_envs": 8, "batch_size": 72},
    **dict.fromkeys(("sac", "td3", "tqc", "dqn"), OFF_POLICY),
    "recurrent-ppo": {"n_envs": 4, "n_steps": 18, "batch_size": 36, "n_epochs": 1},
    "apg": {"n_envs": 9},
}


def tiny(algo, steps=432, *, action="price", hyperparams=None, folder=None, resume=False, crash=None, **more):
    def progress(done, planned, score):
        if crash is not None and done > crash:
            raise KeyboardInterrupt

    settings = TrainingSettings(steps=steps, hyperparams={**TINY[algo], **(hyperparams or {})}, **more)
    keep = None if folder is None else RunFolder(folder, resume)
    return train(algo, EnsembleEnv("campus-event", action=action), settings, keep=keep, progress=progress)


# ------------------------------------------------------------------ every learner
@pytest.mark.parametrize(
    ("algo", "cosines"), [*((name, {}) for name in TINY), ("ppo", {"cosines": 5}), ("sac", {"cosines": 5})]
)
def test_every_learner_trains_resumes_and_is_loaded(algo, cosines, tmp_path):
    """A run that was cut ends as the whole one; the file without code plays as the learner did; memory included.

    The noise of cosines is drawn once for a rollout: after the generators were seeded.
    """
    assert set(TINY) == {*LIBRARIES, "apg"}
    action = "tilt" if cosines else "price"
    plan = {"steps": 1440, "interval": 288, "action": action, "hyperparams": cosines}
    whole = tiny(algo, **plan, folder=tmp_path / "whole")
    assert 1200 < whole.steps <= 1440 and whole.steps == whole.curve[-1][0]
    assert all(score <= 100 + 1e-6 for _, score in whole.curve)
    assert algo not in ("ppo", "apg") or tiny(algo, **plan, seed=1).curve != whole.curve
    with pytest.raises(KeyboardInterrupt):
        tiny(algo, **plan, folder=tmp_path / "cut", crash=900)
    assert json.loads((tmp_path / "cut" / "results.json").read_text())["steps"] >= 900 - 288
    for _ in range(2):  # the second time nothing is left to do
        assert tiny(algo, **plan, folder=tmp_path / "cut", resume=True).curve == whole.curve
    results = json.loads((tmp_path / "cut" / "results.json").read_text())
    assert results["finished"] and results["evaluation"]["score"] == whole.curve[-1][1]
    env, loaded = EnsembleEnv("campus-event", action=action), load_agent(tmp_path / "cut")
    outcome = evaluate(loaded, env)
    assert outcome.exact and outcome.score == pytest.approx(whole.curve[-1][1], abs=1e-6 if cosines else 1e-9)
    assert (loaded.curve, loaded.steps, loaded.privacy) == (whole.curve, whole.steps, whole.privacy)
    assert "true dynamics" in outcome.privacy
    if cosines:
        observation, _ = env.reset(seed=0)
        assert whole.model.predict(observation)[0].shape == (5,)
        assert env.action_space.contains(whole.predict(observation)[0])


# ------------------------------------------------------------------ by name
def test_by_name_on_a_release(campus):
    env = EnsembleEnv(campus, "single", "price", privacy="dirichlet:k=50")
    agent = make_agent("a2c", env, steps=800, seed=1)
    released = EnsembleEnv(env.model, "single", "price")  # the release as if it were the truth
    again = train("a2c", released, TrainingSettings(1, 800))
    assert agent.curve == again.curve and agent.privacy == "that of one release"
    assert again.privacy == "none: learned from the true dynamics"


def test_learners_of_choices():
    env = EnsembleEnv(general_model("everything"), action="discrete")
    agent = make_agent("dqn", env, steps=40, seed=0, hyperparams={"learning_starts": 20})
    action, _ = agent.predict(env.reset(seed=0)[0])
    assert action in env.action_space and agent.curve


# ------------------------------------------------------------------ settings
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"learning_rat": 1e-3}, "did you mean 'learning_rate'"),
        ({"learning_rate": "cosine_1"}, "learning_rate must be finite, and of the type and sign of 'lin_0.003'"),
        ({"policy_kwargs": {"net_arc": [3]}}, "A2C cannot be trained here with these settings: .*net_arc"),
    ],
)
def test_bad_settings_are_refused_before_there_is_a_folder(changes, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        tiny("a2c", hyperparams=changes, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_names_and_budgets_are_checked():
    with pytest.raises(ValueError, match="unknown algo 'standard'"):
        train("standard")
    with pytest.raises(ValueError, match="steps must be at least 360"):
        train("apg", EnsembleEnv("campus-event"), TrainingSettings(steps=100))
    for action in ("policy", "discrete"):
        with pytest.raises(ValueError, match="follows the gradient of tilts.*pass action='tilt' or action='price'"):
            train("apg", EnsembleEnv("campus-event", action=action))
    for wrong in ({"seed": -1}, {"steps": 0}, {"interval": 0}, {"target": 101}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            TrainingSettings(**wrong)


# ------------------------------------------------------------------ training
def test_learning_raises_the_score_and_stops_at_the_target():
    for algo, interval, target in (("a2c", 1_000, 20), ("apg", 360, 40)):
        agent = train(algo, settings=TrainingSettings(steps=50_000, interval=interval, target=target))
        scores = [score for _, score in agent.curve]
        assert scores[-1] >= target > max(scores[:-1]) and scores[0] < 5 and agent.steps < 50_000


def test_true_models_are_refused_beside_a_release():
    env = EnsembleEnv("campus-event", action="tilt", privacy="public")
    with pytest.raises(ValueError, match="the environment runs on a release"):
        train("ppo", env, models=[scenarios.make("campus-event")])


@pytest.mark.parametrize("algo", ["a2c", "apg"])
def test_an_environment_of_several_instances_trains_on_them_and_scores_on_them(algo, tmp_path):
    models = [scenarios.make("spot", instance=i) for i in range(3)]
    env = EnsembleEnv(models, action="price")
    settings = TrainingSettings(steps=1152, interval=1152, hyperparams=TINY[algo])
    agent = train(algo, env, settings, keep=RunFolder(tmp_path / "run"))
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["instances"] == [model.fingerprint for model in models]
    one = EnsembleEnv(models[0], action="price")
    observation, _ = env.reset(seed=0)
    first, again, alone = (
        played.predict(observation)[0] for played in (agent, train(algo, one, settings, models=models),
                                                      train(algo, one, settings))
    )  # fmt: skip
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, alone)
    with pytest.raises(ValueError, match="another configuration"):
        train(algo, one, settings, keep=RunFolder(tmp_path / "run", resume=True))


def test_a_folder_holds_what_is_needed_and_refuses_another_run(tmp_path):
    env = EnsembleEnv(random_model(0, n=4, horizon=3), action="price", privacy="dirichlet:k=50,floor=0.01")
    settings, folder = TrainingSettings(steps=400, hyperparams={"n_envs": 8}), tmp_path / "run"
    train("a2c", env, settings, keep=RunFolder(folder, tensorboard=True))
    assert {path.name for path in folder.iterdir()} == {
        "config.json", "versions.json", "ledger.json", "results.json", "checkpoint.safetensors",
        "checkpoint-older.safetensors", "policy.safetensors", "tensorboard", ".lock",
    }  # fmt: skip
    assert any((folder / "tensorboard").iterdir())
    config = json.loads((folder / "config.json").read_text())
    assert (config["seed"], config["action"], config["hyperparams"]["n_envs"]) == (0, "price", 8)
    assert "stable-baselines3" in json.loads((folder / "versions.json").read_text())
    assert PrivacyLedger.from_json((folder / "ledger.json").read_text()).releases == 1
    other = TrainingSettings(1, 400, hyperparams={"n_envs": 8, "gae_lambda": 0.5})
    with pytest.raises(ValueError, match=r"seed is 0, not 1, hyperparams\.gae_lambda is .*, not 0\.5"):
        train("a2c", env, other, keep=RunFolder(folder, resume=True))


# ------------------------------------------------------------------ in one go, and of one's own
@pytest.mark.parametrize(
    ("algo", "steps", "more"), [("z-learning", 20_000, {"exploration": "passive"}), ("cloning", 9_000, {})]
)
def test_learners_in_one_go_are_kept_and_scored(algo, steps, more, tmp_path, campus):
    env = EnsembleEnv(campus, "single")
    settings = TrainingSettings(seed=2, steps=steps, hyperparams=more)
    agent = train(algo, env, settings, keep=RunFolder(tmp_path / "run"))
    loaded = load_agent(tmp_path / "run")
    made = make_agent(algo, env, steps=steps, seed=2, **more)
    scores = [evaluate(one, env).score for one in (agent, loaded, made)]
    assert scores[0] == pytest.approx(scores[2], abs=1e-9) and scores[1] == scores[0] > 80
    assert evaluate(loaded, env).exact == (algo == "z-learning") and loaded.steps == agent.steps <= steps
    wrong = TrainingSettings(hyperparams={"exploration": 3})
    with pytest.raises(ValueError, match="exploration must be finite, and of the type|unknown hyper-parameter"):
        train(algo, env, wrong, keep=RunFolder(tmp_path / "no"))
    assert not (tmp_path / "no").exists()


def test_a_learner_of_a_library_is_one_line(tmp_path):
    register_learner("cross-q", "sb3_contrib:CrossQ")
    env = EnsembleEnv("campus-event", action="price")
    changes = {"learning_starts": 20, "buffer_size": 500, "batch_size": 16, "n_envs": 4}
    agent = train("cross-q", env, TrainingSettings(steps=60, hyperparams=changes), keep=RunFolder(tmp_path / "run"))
    assert evaluate(load_agent(tmp_path / "run"), env).score == pytest.approx(evaluate(agent, env).score, abs=1e-6)
