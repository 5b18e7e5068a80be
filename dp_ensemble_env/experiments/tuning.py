#!/usr/bin/env python3
"""Search hyper-parameters of a learner with Optuna, and keep a summary of the study.

Examples
--------
    dp-ensemble tune --algo ppo --action price --steps 50000 --trials 20
    dp-ensemble tune --algo ppo --env SingleLoad --action price --steps 150000 --trials 20
    dp-ensemble tune --algo sac --action price --steps 10000 --trials 10 --output runs/studies

Trial 0 is what `dp_ensemble_env.agents.hyperparams` holds now, so a study says what the search
gained. Training seeds begin at 1000, apart from those that results are reported
for. The same command gives the same study on one machine.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from dp_ensemble_env._validation import check_choice, check_count  # noqa: E402
from dp_ensemble_env.agents.hyperparams import ACTIONS, ALGORITHMS, hyperparameters  # noqa: E402
from dp_ensemble_env.envs.registration import ENVIRONMENTS  # noqa: E402

FIRST_SEED = 1000
RATES = (3e-4, 1e-2)


@dataclass
class Arguments:
    """What the command line sets."""

    algo: str = "ppo"
    """Algorithm to tune."""
    env: str = "MeanField"
    """Environment: MeanField, Buildings or SingleLoad."""
    action: str = "price"
    """Action mode: price, tilt or policy."""
    steps: int = 50_000
    """Environment steps of each training run."""
    trials: int = 20
    """Settings to try."""
    seeds: int = 1
    """Training seeds per setting; the mean of their last scores counts."""
    output: str = "docs/tuning"
    """Folder for the summary."""


# ------------------------------------------------------------------ search spaces
def suggest(trial: Any, algo: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the changes to `settings` that a trial proposes."""
    return (_on_policy if "n_steps" in settings else _off_policy)(trial, algo, settings)


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
    changes: dict[str, Any] = {
        "learning_rate": trial.suggest_float("learning_rate", *RATES, log=True),
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
        changes["ent_coef"] = trial.suggest_float("ent_coef", 1e-4, 1e-2, log=True)
    return changes


def present(algo: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Return today's settings in the words of the search space, for trial 0."""
    searched = (
        *("n_envs", "gae_lambda", "n_epochs", "target_kl", "n_critic_updates") * ("n_steps" in settings),
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
    found = {key: settings[key] for key in searched if key in settings}
    found["learning_rate"] = float(str(settings["learning_rate"]).removeprefix("lin_"))
    if "n_steps" in settings:
        found["log_std_init"] = settings["policy_kwargs"].get("log_std_init", 0.0)
    elif algo != "dqn":
        found["tau"] = settings.get("tau", 0.005)
    if algo == "ppo":
        found["minibatches"] = settings["n_envs"] * settings["n_steps"] // settings["batch_size"]
    return found


# ------------------------------------------------------------------ the study
def run(args: Arguments, say: Callable[[str], None]) -> Path:
    """Run the study and write its summary."""
    import optuna

    from dp_ensemble_env.agents.sb3 import train
    from dp_ensemble_env.agents.training import write_json
    from dp_ensemble_env.reporting.provenance import versions

    env_id = f"dp_ensemble/{args.env}-v0"
    settings = hyperparameters(args.algo, env_id, args.action)

    def objective(trial: Any) -> float:
        changes, began = suggest(trial, args.algo, settings), time.perf_counter()
        trial.set_user_attr("hyperparams", changes)
        scores = [
            train(
                args.algo, env_id, args.action, total_steps=args.steps, seed=FIRST_SEED + i, hyperparams=changes
            ).curve[-1][1]
            for i in range(args.seeds)
        ]
        trial.set_user_attr("scores", scores)
        trial.set_user_attr("seconds", round(time.perf_counter() - began, 1))
        value = sum(scores) / len(scores)
        say(f"trial {trial.number}: {value:.2f} with {trial.params}")
        return value

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0, n_startup_trials=8))
    study.enqueue_trial(present(args.algo, settings), skip_if_exists=True)
    path = Path(args.output) / f"{args.algo}-{args.env}-{args.action}.json"

    def keep(study: Any, trial: Any) -> None:
        write_json(path, summary(args, study, versions()))  # after every trial: a study may be cut short

    study.optimize(objective, n_trials=args.trials, callbacks=[keep])
    say(f"best: {study.best_value:.2f} in trial {study.best_trial.number}, {study.best_params}; wrote {path}")
    return path


def summary(args: Arguments, study: Any, versions: dict[str, str]) -> dict[str, Any]:
    """Return what is worth keeping of a study."""
    trials = [
        {"number": t.number, "value": round(t.value, 3), "params": t.params, **t.user_attrs}
        for t in study.trials
        if t.value is not None
    ]
    for trial in trials:
        trial["scores"] = [round(score, 3) for score in trial["scores"]]
    asked = {f.name: getattr(args, f.name) for f in fields(Arguments) if f.name != "output"}
    command = " ".join(f"--{name} {value}" for name, value in {**asked, "trials": len(trials)}.items())
    return {
        "command": f"dp-ensemble tune {command}",
        "sampler": "TPE, seed 0, 8 random trials first",
        "first_seed": FIRST_SEED,
        "versions": versions,
        "best_trial": study.best_trial.number,
        "best_value": round(study.best_value, 3),
        "best_hyperparams": study.best_trial.user_attrs["hyperparams"],
        "trials": trials,
    }


# ------------------------------------------------------------------ command line
def build_parser() -> argparse.ArgumentParser:
    """Declare the options, one per field of `Arguments`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Arguments()
    parser.add_argument("--algo", default=default.algo, help=f"algorithm: {', '.join(ALGORITHMS)} (default ppo)")
    parser.add_argument("--env", default=default.env, help="MeanField (default), Buildings or SingleLoad")
    parser.add_argument("--action", default=default.action, help=f"action mode: {', '.join(ACTIONS)} (default price)")
    parser.add_argument("--steps", type=int, default=default.steps, help="steps of a training run (default 50000)")
    parser.add_argument("--trials", type=int, default=default.trials, help="settings to try (default 20)")
    parser.add_argument("--seeds", type=int, default=default.seeds, help="training seeds per setting (default 1)")
    parser.add_argument("--output", default=default.output, help="folder of the summary (default docs/tuning)")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run the command; bad input gives one sentence on stderr and the status 2."""
    args = Arguments(**vars(build_parser().parse_args(argv)))
    try:
        check_choice(args.algo, "--algo", ALGORITHMS)
        check_choice(args.env, "--env", [name.split("/")[1].removesuffix("-v0") for name in ENVIRONMENTS])
        check_choice(args.action, "--action", ACTIONS)
        for name in ("steps", "trials", "seeds"):
            check_count(getattr(args, name), f"--{name}")
        run(args, lambda text: print(text, flush=True))
    except (ValueError, OSError, ImportError) as error:
        print(f"tune.py: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
