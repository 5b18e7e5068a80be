"""Search hyper-parameters of a learner with Optuna, and keep a summary of the study.

Trial 0 is what `dp_ensemble_env.agents.hyperparams` holds now, so a study says what the search
gained. Training seeds begin at 1000, apart from those that results are reported
for. The same settings give the same study on one machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dp_ensemble_env import scenarios
from dp_ensemble_env._validation import check_choice, check_count
from dp_ensemble_env.agents.hyperparams import ALGORITHMS, LINEAR, changes_for, hyperparameters
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.envs.settings import DEFAULT_SCENARIO

FIRST_SEED = 1000
RATES = (3e-4, 1e-2)
#: Policies of learners that have the time in one-hot code.
NETS: dict[str, Any] = {"linear": LINEAR["net_arch"], "small": {"pi": [64, 64], "vf": [64, 64]}}
NAMES = {"mean-field": "MeanField", "buildings": "Buildings", "single": "SingleLoad"}


@dataclass(frozen=True)
class TuningSettings:
    """What is tuned, and how long is searched.

    Attributes
    ----------
    algo : str
    population : {"mean-field", "buildings", "single"}
    action : str
    steps : int
        Environment steps of each training run.
    trials : int
        Settings to try.
    seeds : int
        Training seeds per setting; the mean of their last scores counts.
    scenario : str
        Where it is trained, in the first validation instance: results are reported on others.
    """

    algo: str = "ppo"
    population: str = "mean-field"
    action: str = "price"
    steps: int = 50_000
    trials: int = 20
    seeds: int = 1
    scenario: str = DEFAULT_SCENARIO

    def __post_init__(self) -> None:
        check_choice(self.algo, "algo", ALGORITHMS)
        check_choice(self.population, "population", NAMES)
        for name in ("steps", "trials", "seeds"):
            check_count(getattr(self, name), name)
        check_choice(self.scenario, "scenario", scenarios.names())
        hyperparameters(self.algo, self.env_id, self.action)  # refuses what does not go together

    @property
    def env_id(self) -> str:
        """The environment whose settings are tuned."""
        return f"dp_ensemble/{NAMES[self.population]}-v0"

    @property
    def command(self) -> str:
        """The command that runs this study."""
        asked = f"--algo {self.algo} --population {self.population} --action {self.action}"
        asked += "" if self.scenario == DEFAULT_SCENARIO else f" --scenario {self.scenario}"
        return f"dp-ensemble tune {asked} --steps {self.steps} --trials {self.trials} --repeats {self.seeds}"


# ------------------------------------------------------------------ search spaces
def suggest(trial: Any, algo: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the changes to `settings` that a trial proposes."""
    if algo == "apg":
        return _gradient(trial, algo, settings)
    changes = (_on_policy if "n_steps" in settings else _off_policy)(trial, algo, settings)
    if settings.get("clock") and "n_steps" in settings:
        net = trial.suggest_categorical("net", list(NETS))
        changes["policy_kwargs"] = {**changes["policy_kwargs"], "net_arch": NETS[net]}
    if "cosines" in settings:
        changes["cosines"] = trial.suggest_categorical("cosines", [4, 6, 10, 20])
    return changes


def _gradient(trial: Any, algo: str, settings: dict[str, Any]) -> dict[str, Any]:
    return {
        "n_envs": trial.suggest_categorical("n_envs", [5, 10, 20, 40]),
        "learning_rate": f"lin_{trial.suggest_float('learning_rate', 1e-3, 3e-2, log=True):.3g}",
    }


def _on_policy(trial: Any, algo: str, settings: dict[str, Any]) -> dict[str, Any]:
    changes: dict[str, Any] = {
        "n_envs": trial.suggest_categorical("n_envs", [16, 32, 64, 128]),
        "gae_lambda": trial.suggest_float("gae_lambda", 0.8, 1.0, step=0.05),
    }
    rate = trial.suggest_float("learning_rate", *RATES, log=True)
    changes["learning_rate"] = rate if algo == "trpo" else f"lin_{rate:.3g}"
    log_std = trial.suggest_float("log_std_init", -4.0, -0.5, step=0.25)
    changes["policy_kwargs"] = {**settings["policy_kwargs"], "log_std_init": log_std}
    rollout = changes["n_envs"] * settings["n_steps"]
    if algo == "ppo":
        changes["n_epochs"] = trial.suggest_categorical("n_epochs", [5, 10, 20])
        changes["batch_size"] = rollout // trial.suggest_categorical("minibatches", [1, 2, 4, 8])
    if algo == "trpo":
        changes["batch_size"] = rollout // 4
        changes["target_kl"] = trial.suggest_float("target_kl", 0.005, 0.2, log=True)
        changes["n_critic_updates"] = trial.suggest_categorical("n_critic_updates", [5, 10, 20, 40])
    return changes


def _off_policy(trial: Any, algo: str, settings: dict[str, Any]) -> dict[str, Any]:
    rate = trial.suggest_float("learning_rate", *RATES, log=True)
    changes: dict[str, Any] = {
        "learning_rate": f"lin_{rate:.3g}" if str(settings["learning_rate"]).startswith("lin_") else rate,
        "gradient_steps": trial.suggest_categorical("gradient_steps", [1, 2, 4]),
        "batch_size": trial.suggest_categorical("batch_size", [128, 256]),
    }
    if algo == "dqn":
        changes["bins"] = trial.suggest_categorical("bins", [11, 21, 41])
        changes["exploration_fraction"] = trial.suggest_float("exploration_fraction", 0.1, 0.5, step=0.1)
        changes["target_update_interval"] = trial.suggest_categorical("target_update_interval", [100, 250, 500, 1000])
        return changes
    changes["tau"] = trial.suggest_categorical("tau", [0.005, 0.01, 0.02])
    if algo == "td3":
        changes["noise_std"] = trial.suggest_float("noise_std", 0.02, 0.3, log=True)
    else:
        changes["ent_coef"] = trial.suggest_float("ent_coef", 1e-6, 1e-2, log=True)
    return changes


def present(algo: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Return today's settings in the words of the search space, for trial 0."""
    searched = (
        *("n_envs", "gae_lambda", "n_epochs", "target_kl", "n_critic_updates") * ("n_steps" in settings),
        "cosines",
        *(
            "gradient_steps",
            "batch_size",
            "bins",
            "exploration_fraction",
            "target_update_interval",
            "noise_std",
            "ent_coef",
        )
        * ("n_steps" not in settings),
    )
    if algo == "apg":
        searched = ("n_envs",)
    found = {key: settings[key] for key in searched if key in settings}
    found["learning_rate"] = float(str(settings["learning_rate"]).removeprefix("lin_"))
    if "n_steps" in settings:
        found["log_std_init"] = settings["policy_kwargs"].get("log_std_init", 0.0)
        if settings.get("clock"):
            found["net"] = next(name for name, net in NETS.items() if net == settings["policy_kwargs"]["net_arch"])
    elif algo not in ("dqn", "apg"):
        found["tau"] = settings.get("tau", 0.005)
    if algo == "ppo":
        found["minibatches"] = settings["n_envs"] * settings["n_steps"] // settings["batch_size"]
    return found


# ------------------------------------------------------------------ the study
def tune(
    settings: TuningSettings,
    folder: Path,
    say: Callable[[str], None] = lambda text: None,
    progress: Callable[[int, int, float], None] = lambda done, planned, score: None,
) -> Path:
    """Run the study and write its summary, after every trial: a study may be cut short.

    Parameters
    ----------
    settings : TuningSettings
    folder : path
        Where the summary goes.
    say : callable, optional
        Told of every trial.
    progress : callable, optional
        Called with the steps of the whole study that are done, those planned, and the latest score.
    """
    import optuna

    from dp_ensemble_env.agents.sb3 import TrainingSettings, train

    # Settings for the campus event are found on the event itself, as they always were.
    split = "train" if settings.scenario == DEFAULT_SCENARIO else "validation"
    env = EnsembleEnv(settings.scenario, settings.population, settings.action, split=split)
    total = settings.trials * settings.seeds * settings.steps
    tuned = hyperparameters(settings.algo, settings.env_id, settings.action)
    own = changes_for(settings.algo, settings.scenario, settings.action, settings.population)
    if "n_steps" in tuned and "n_steps" not in own:  # rollouts are whole episodes
        own["n_steps"] = env.model.horizon
        if "batch_size" in tuned and "batch_size" not in own:
            own["batch_size"] = tuned["batch_size"] * own["n_steps"] // tuned["n_steps"]
    tuned |= own

    def objective(trial: Any) -> float:
        changes, began = {**own, **suggest(trial, settings.algo, tuned)}, time.perf_counter()
        trial.set_user_attr("hyperparams", changes)
        scores = []
        for i in range(settings.seeds):
            before = (trial.number * settings.seeds + i) * settings.steps
            training = TrainingSettings(FIRST_SEED + i, settings.steps, hyperparams=changes)

            def report(done: int, planned: int, score: float, before: int = before) -> None:
                progress(before + done, total, score)

            scores.append(train(settings.algo, env, training, progress=report).curve[-1][1])
        trial.set_user_attr("scores", scores)
        trial.set_user_attr("seconds", round(time.perf_counter() - began, 1))
        value = sum(scores) / len(scores)
        say(f"trial {trial.number}: {value:.2f} with {trial.params}")
        return value

    optuna.logging.set_verbosity(optuna.logging.ERROR)  # also of a trial that Ctrl-C ends
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0, n_startup_trials=8))
    now = present(settings.algo, tuned)
    study.enqueue_trial(now, skip_if_exists=True)
    if now.get("net") == "linear":  # more features make more noise, so it begins lower
        study.enqueue_trial({**now, "net": "small", "log_std_init": max(-4.0, now["log_std_init"] - 1.5)})
    home = "" if settings.scenario == DEFAULT_SCENARIO else f"{settings.scenario}-"
    path = folder / f"{home}{settings.algo}-{NAMES[settings.population]}-{settings.action}.json"
    study.optimize(objective, n_trials=settings.trials, callbacks=[lambda study, trial: _keep(path, settings, study)])
    say(f"best: {study.best_value:.2f} in trial {study.best_trial.number}, {study.best_params}; wrote {path}")
    return path


def _keep(path: Path, settings: TuningSettings, study: Any) -> None:
    """Write what is worth keeping of a study."""
    from dp_ensemble_env.agents.runs import write_json
    from dp_ensemble_env.reporting.provenance import versions

    trials = [
        {"number": t.number, "value": round(t.value, 3), "params": t.params, **t.user_attrs}
        for t in study.trials
        if t.value is not None
    ]
    for trial in trials:
        trial["scores"] = [round(score, 3) for score in trial["scores"]]
    content = {
        "command": replace(settings, trials=len(trials)).command,
        "sampler": "the present settings, then a network if they are linear, then TPE: seed 0, 8 random trials first",
        "first_seed": FIRST_SEED,
        "versions": versions(),
        "best_trial": study.best_trial.number,
        "best_value": round(study.best_value, 3),
        "best_hyperparams": study.best_trial.user_attrs["hyperparams"],
        "trials": trials,
    }
    write_json(path, content)
