"""Search hyper-parameters of a learner with Optuna, and keep a summary of the study.

``python scripts/tuning.py --algo ppo --action price --steps 50000 --trials 20`` writes it to runs/tuning.

Trial 0 is what ``agents/hyperparams.toml`` holds now, so a study says what the search
gained. Training seeds begin at 1000, apart from those that results are reported
for. The same settings give the same study on one machine.

Settings of the campus event are found on the event itself. Settings of another scenario have to serve on instances that
the learner never saw, so each trial trains on the training instances, as the leaderboard does, and is scored on
validation instances: the interquartile mean over instances and seeds counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dp_ensemble_env import scenarios
from dp_ensemble_env.agents.generalisation import evaluate_split
from dp_ensemble_env.agents.settings import scenario_changes, tuned_settings
from dp_ensemble_env.agents.statistics import interquartile_mean
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.tools.console import Progress
from dp_ensemble_env.tools.files import check_writable
from dp_ensemble_env.tools.validation import check_choice, check_count

FIRST_SEED = 1000
#: Episodes on a validation instance where there is chance, and the seed that they begin with.
EPISODES, EPISODE_SEED = 200, 10_000
RATES = (3e-4, 1e-2)
#: Training instances of a scenario: a multiple of sub-environments has all of them in every rollout.
INSTANCES = len(scenarios.instances("train"))
#: Numbers of sub-environments to choose from: on one model, and on all training instances.
ROLLOUTS = ([16, 32, 64, 128], [INSTANCES, 2 * INSTANCES, 4 * INSTANCES])
#: In a scenario the settings of trial 0 are tried with these instead of their own λ: it decides how far an advantage
#: looks, and with that how much of it is the luck of prices and weather.
LAMBDAS = (0.5, 1.0)
#: The scenario that settings are tuned on unless another is named.
DEFAULT_SCENARIO = "campus-event"
#: Policies of learners that have the time in one-hot code.
ALGORITHMS = ("ppo", "a2c", "trpo", "sac", "tqc", "td3", "dqn", "apg")
NETS: dict[str, Any] = {"linear": {"pi": [], "vf": [64, 64]}, "small": {"pi": [64, 64], "vf": [64, 64]}}
NAMES = ("mean-field", "single")


@dataclass(frozen=True)
class TuningSettings:
    """What is tuned, and how long is searched.

    Attributes
    ----------
    algo : str
    population : {"mean-field", "single"}
    action : str
    steps : int
        Environment steps of each training run.
    trials : int
        Settings to try.
    repeats : int
        Training runs of each setting.
    scenario : str
        Where it is trained: the campus event, or the training instances of another scenario.
    instances : int
        Validation instances that a setting is scored on, the first so many; the campus event has none.
    """

    algo: str = "ppo"
    population: str = "mean-field"
    action: str = "price"
    steps: int = 50_000
    trials: int = 20
    repeats: int = 1
    scenario: str = DEFAULT_SCENARIO
    instances: int = 5

    def __post_init__(self) -> None:
        check_choice(self.algo, "algo", ALGORITHMS)
        check_choice(self.population, "population", NAMES)
        for name in ("steps", "trials", "repeats"):
            check_count(getattr(self, name), name)
        check_choice(self.scenario, "scenario", scenarios.names())
        check_count(self.instances, "instances", 1, len(scenarios.instances("validation")))
        found = tuned_settings(self.algo, self.population, self.action)  # refuses what does not go together
        if self.general and "bins" in found:
            home = f"scenario={DEFAULT_SCENARIO!r}"
            raise ValueError(f"{self.algo} does not train on several instances; tune it on {home}.")

    @property
    def general(self) -> bool:
        """Whether settings have to serve on instances that were not trained on."""
        return self.scenario != DEFAULT_SCENARIO

    @property
    def command(self) -> str:
        """The command that runs this study."""
        asked = f"--algo {self.algo} --population {self.population} --action {self.action}"
        if self.general:
            asked += f" --scenario {self.scenario} --instances {self.instances}"
        return f"python scripts/tuning.py {asked} --steps {self.steps} --trials {self.trials} --repeats {self.repeats}"


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


def _with(choices: list[int], present: int) -> list[int]:
    """Return the choices and, if it is not among them, what is set now."""
    return sorted({*choices, present})


def _gradient(trial: Any, algo: str, settings: dict[str, Any]) -> dict[str, Any]:
    return {
        "n_envs": trial.suggest_categorical("n_envs", _with([5, 10, 20, 40], settings["n_envs"])),
        "learning_rate": f"lin_{trial.suggest_float('learning_rate', 1e-3, 3e-2, log=True):.3g}",
    }


def _on_policy(trial: Any, algo: str, settings: dict[str, Any]) -> dict[str, Any]:
    changes: dict[str, Any] = {
        "n_envs": trial.suggest_categorical(
            "n_envs", _with(ROLLOUTS[settings["n_envs"] % INSTANCES == 0], settings["n_envs"])
        ),
        "gae_lambda": trial.suggest_float("gae_lambda", 0.3, 1.0, step=0.05),
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
def beginning(settings: TuningSettings, horizon: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what differs from the campus event's settings, and all settings, of trial 0."""
    tuned = tuned_settings(settings.algo, settings.population, settings.action)
    field = settings.population == "mean-field"
    own = scenario_changes(settings.algo, settings.scenario, settings.action) if field else {}
    if "n_steps" in tuned and "n_steps" not in own:  # rollouts are whole episodes
        own["n_steps"] = horizon
        if settings.general:  # of all instances
            own["n_envs"] = INSTANCES * -(-tuned["n_envs"] // INSTANCES)
        if "batch_size" in tuned and "batch_size" not in own:
            rollout, before = (x["n_envs"] * x["n_steps"] for x in (tuned | own, tuned))
            own["batch_size"] = tuned["batch_size"] * rollout // before
    return own, tuned | own


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

    from dp_ensemble_env.agents.train import TrainingSettings, train

    env = EnsembleEnv(settings.scenario, settings.population, settings.action)
    numbers = scenarios.instances("train") if settings.general else ()
    models = [scenarios.make(settings.scenario, instance=i) for i in numbers]
    interval = max(1, settings.steps // 4) if settings.general else None  # as the leaderboard trains
    total = settings.trials * settings.repeats * settings.steps
    own, tuned = beginning(settings, env.model.horizon)

    def objective(trial: Any) -> float:
        changes, began = {**own, **suggest(trial, settings.algo, tuned)}, time.perf_counter()
        trial.set_user_attr("hyperparams", changes)
        agents = []
        for i in range(settings.repeats):
            before = (trial.number * settings.repeats + i) * settings.steps
            training = TrainingSettings(FIRST_SEED + i, settings.steps, interval=interval, hyperparams=changes)

            def report(done: int, planned: int, score: float, before: int = before) -> None:
                progress(before + done, total, score)

            agents.append(train(settings.algo, env, training, progress=report, models=models))
        value, scores = _scored(agents, settings)
        trial.set_user_attr("scores", scores)
        trial.set_user_attr("seconds", round(time.perf_counter() - began, 1))
        say(f"trial {trial.number}: {value:.2f} with {trial.params}")
        return value

    optuna.logging.set_verbosity(optuna.logging.ERROR)  # also of a trial that Ctrl-C ends
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0, n_startup_trials=8))
    now = present(settings.algo, tuned)
    study.enqueue_trial(now, skip_if_exists=True)
    if now.get("net") == "linear":  # more features make more noise, so it begins lower
        study.enqueue_trial({**now, "net": "small", "log_std_init": max(-4.0, now["log_std_init"] - 1.5)})
    if settings.general and "gae_lambda" in now:
        for value in LAMBDAS:
            study.enqueue_trial({**now, "gae_lambda": value}, skip_if_exists=True)
    home = "" if settings.scenario == DEFAULT_SCENARIO else f"{settings.scenario}-"
    path = folder / f"{home}{settings.algo}-{settings.population}-{settings.action}.json"
    study.optimize(objective, n_trials=settings.trials, callbacks=[lambda study, trial: _keep(path, settings, study)])
    say(f"best: {study.best_value:.2f} in trial {study.best_trial.number}, {study.best_params}; wrote {path}")
    return path


def _scored(agents: list[Any], settings: TuningSettings) -> tuple[float, list[Any]]:
    """Return what counts of equal runs, and the scores that it is made of: by run, or by run and instance."""
    if not settings.general:
        last = [float(agent.curve[-1][1]) for agent in agents]
        return sum(last) / len(last), [round(score, 3) for score in last]
    found = evaluate_split(
        agents,
        settings.scenario,
        "validation",
        population=settings.population,
        action=settings.action,
        instances=settings.instances,
        gap=False,
        episodes=EPISODES,
        seed=EPISODE_SEED,
    )
    return interquartile_mean(found.scores), found.scores.round(3).tolist()


def _keep(path: Path, settings: TuningSettings, study: Any) -> None:
    """Write what is worth keeping of a study."""
    from dp_ensemble_env.agents.runs import write_json
    from dp_ensemble_env.reporting.provenance import versions

    trials = [
        {"number": t.number, "value": round(t.value, 3), "params": t.params, **t.user_attrs}
        for t in study.trials
        if t.value is not None
    ]
    content = {
        "command": replace(settings, trials=len(trials)).command,
        "sampler": "what was enqueued (the present settings first), then TPE: seed 0, 8 random trials first",
        "first_seed": FIRST_SEED,
        "versions": versions(),
        "best_trial": study.best_trial.number,
        "best_value": round(study.best_value, 3),
        "best_hyperparams": study.best_trial.user_attrs["hyperparams"],
        "trials": trials,
    }
    write_json(path, content)


def main(settings: TuningSettings, output: Path = Path("runs/tuning")) -> int:
    """Search hyper-parameters of a learner with Optuna.

    Parameters
    ----------
    settings : TuningSettings
    output : Path
        Folder of the summary.
    """
    check_writable(output, folder=True)
    with Progress("tuning") as monitor:

        def progress(done: int, planned: int, score: float) -> None:
            monitor.advance(done, f"score {score:.1f}", planned)

        tune(settings, output, lambda text: print(text, flush=True), progress)
    return 0


if __name__ == "__main__":
    import tyro

    tyro.cli(main, config=(tyro.conf.OmitArgPrefixes,))
