"""`scripts/tuning.py`: studies begin with the present settings, repeat, and score on validation instances."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tuning
from helpers import ROOT

pytest.importorskip("optuna")
pytest.importorskip("stable_baselines3")


def test_study_begins_with_the_present_settings_and_is_reproducible(tmp_path):
    settings = tuning.TuningSettings("a2c", steps=2400, trials=3)
    summaries = []
    for name in ("a", "b"):
        assert tuning.main(settings, tmp_path / name) == 0
        summaries.append(json.loads((tmp_path / name / "a2c-mean-field-price.json").read_text()))
    from dp_ensemble_env.agents.settings import tuned_settings

    first, second = ([(t["value"], t["params"]) for t in s["trials"]] for s in summaries)
    assert first == second and len(first) == 3
    now = tuned_settings("a2c", "mean-field", "price")
    assert first[0][1]["n_envs"] == now["n_envs"] and first[0][1]["gae_lambda"] == pytest.approx(now["gae_lambda"])
    assert summaries[0]["best_value"] == max(value for value, _ in first)
    with pytest.raises(ValueError, match="trials must be at least 1"):
        tuning.TuningSettings(trials=0)


def test_study_of_a_scenario_trains_on_training_and_scores_on_validation_instances(tmp_path):
    """What a trial is worth: the interquartile mean over validation instances, of runs on all training instances."""
    from dp_ensemble_env import scenarios
    from dp_ensemble_env.agents import evaluate
    from dp_ensemble_env.agents.train import TrainingSettings, train
    from dp_ensemble_env.envs.ensemble import EnsembleEnv

    steps = 3 * 20 * 48  # three updates, each on an instance of its own
    chosen = {"algo": "apg", "action": "tilt", "scenario": "spot", "steps": steps, "trials": 1, "repeats": 2}
    assert tuning.main(tuning.TuningSettings(**chosen, instances=4), tmp_path) == 0
    study = json.loads((tmp_path / "spot-apg-mean-field-tilt.json").read_text())
    assert "--scenario spot --instances 4 --steps" in study["command"]
    models = [scenarios.make("spot", instance=i) for i in scenarios.instances("train")]
    expected = []
    for seed in (1000, 1001):
        settings = TrainingSettings(seed, steps, interval=steps // 4)
        agent = train("apg", EnsembleEnv(models[0]), settings, models=models, scenario="spot")
        played = [EnsembleEnv("spot", instance=i, split="validation") for i in range(4)]
        expected.append([evaluate(agent, env, 200, 10_000).score for env in played])
    (trial,) = study["trials"]
    assert np.array(trial["scores"]) == pytest.approx(np.array(expected), abs=1e-3)
    assert trial["value"] == pytest.approx(np.sort(np.ravel(expected))[2:6].mean(), abs=1e-3)
    with pytest.raises(ValueError, match="instances must be"):
        tuning.TuningSettings(**chosen, instances=11)


def test_committed_studies_name_their_command():
    folder = ROOT / "docs" / "tuning"
    text = (folder.parent / "tuning.md").read_text()
    for path in folder.glob("*-*.json"):
        study = json.loads(path.read_text())
        assert study["command"] in text
        assert study["best_value"] == max(trial["value"] for trial in study["trials"])


def test_every_study_can_begin_with_the_present_settings():
    """Trial 0 is what the package holds, whatever is tuned: each of its values is among the choices."""
    import optuna

    from dp_ensemble_env import scenarios

    begun = set()
    for algo in tuning.ALGORITHMS:
        for scenario in sorted(page.stem for page in (ROOT / "docs" / "scenarios").glob("*.md")):
            horizon = scenarios.make(scenario).horizon
            for population in tuning.NAMES:
                for action in ("price", "tilt"):
                    try:
                        settings = tuning.TuningSettings(algo, population, action, scenario=scenario)
                    except ValueError as error:
                        assert algo == "dqn" and ("price mode" in str(error) or "several instances" in str(error))
                        continue
                    _, tuned = tuning.beginning(settings, horizon)
                    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
                    now = tuning.present(algo, tuned)
                    study.enqueue_trial(now)
                    trial = study.ask()
                    tuning.suggest(trial, algo, tuned)  # Optuna refuses what is not among the choices
                    assert {name: trial.params[name] for name in now} == pytest.approx(now)
                    begun.add((algo, action))
    assert {algo for algo, _ in begun} == set(tuning.ALGORITHMS) and ("ppo", "tilt") in begun
