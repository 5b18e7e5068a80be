"""Score a named or saved agent in any of the environments.

    dp-ensemble evaluate standard
    dp-ensemble evaluate digamma --action policy --k 50
    dp-ensemble evaluate standard --solve-on 50 --action policy      solved on a release, scored on the truth
    dp-ensemble evaluate runs/my-run --env SingleLoad --action price --episodes 5000
    dp-ensemble evaluate best-price --meter meter.csv --unit kW --stamp start --date 2018-07-02

The score is 0 for the uncontrolled ensemble and 100 for the exact optimum of the environment it is measured in. The
mean field is evaluated exactly over all start states; finite populations with seeded episodes and standard errors.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from pathlib import Path
from typing import Any

from dp_ensemble_env._files import atomic_write
from dp_ensemble_env._validation import check_count
from dp_ensemble_env.agents import Evaluation, agent_names, evaluate, make_agent
from dp_ensemble_env.cli.options import add_data_arguments, load_model
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.experiments.comparison import POPULATIONS
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.policies import POLICIES
from dp_ensemble_env.privacy.mechanisms.dirichlet import DirichletMechanism

#: Lines of the report: label, attribute, unit, digits.
LINES = (
    ("mean return", "mean_return", "$/building", 2),
    ("gap to the optimum", "gap", "$/building", 3),
    ("discomfort", "discomfort", "$/building", 2),
    ("energy cost", "energy_cost", "$/building", 2),
    ("curtailed over the event, mean", "curtailment_kw", "kW", 0),
    ("curtailed at the peak", "curtailed_peak_kw", "kW", 0),
    ("curtailed over the event", "curtailed_kwh", "kWh", 0),
    ("delivered against the baseline", "delivered_kwh", "kWh", 0),
)


def get_agent(args: argparse.Namespace, env: EnsembleEnv) -> Any:
    """Make the agent by name, or load it from a run folder or model file."""
    if args.agent not in agent_names():
        if not Path(args.agent).exists():
            raise ValueError(
                f"{args.agent!r} is neither an agent ({', '.join(agent_names())}) nor a run folder or model file."
            )
        from dp_ensemble_env.agents.sb3 import load_agent

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            agent = load_agent(args.agent, args.folder, algo=args.algo)
        for warning in caught:
            print(f"evaluate: {warning.message}", file=sys.stderr)
        return agent
    settings: dict[str, Any] = {}
    if args.agent in (*POLICIES, "average", "best-price") and args.solve_on is not None:
        settings["release"] = DirichletMechanism(args.solve_on).release(env.model.default, args.release_seed)
    if args.agent in (*POLICIES, "average") and args.agent != "standard" and args.expect is not None:
        settings["k"] = args.expect
    if args.steps is not None:
        settings["transitions" if args.agent == "z-learning" else "steps"] = args.steps
        settings["seed"] = args.seed
    return make_agent(args.agent, env, **settings)


def show(name: str, env: EnsembleEnv, model: EnsembleModel, result: Evaluation) -> None:
    """Print the report; `model` is the true one, which a release without a floor is measured against."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{name} in {args_title(env)}", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    error = "exact" if result.exact else f"± {result.score_error:.2f}, {result.episodes:,} episodes"
    table.add_row("score", f"{0.0 if abs(result.score) < 5e-3 else result.score:.2f}", error)
    for label, attribute, unit, digits in LINES:
        value = getattr(result, attribute)
        text = "–" if value != value else f"{value if abs(value) > 5e-4 else 0.0:,.{digits}f}"
        extra = f" ± {result.standard_error:.2f}" if attribute == "mean_return" and not result.exact else ""
        table.add_row(label, text, unit + extra)
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(table)
    console.print(f"Privacy of the agent: {result.privacy}.", highlight=False)
    console.print(env.ledger.statement(model=model if env.release else None), highlight=False, markup=False)


def args_title(env: EnsembleEnv) -> str:
    """Describe the environment in a few words."""
    loads = "the mean field" if env.population is None else f"{env.population} load{'s' * (env.population > 1)}"
    return f"{loads}, {env.action_mode} mode" + (f", release with k = {env.release.k:g}" if env.release else "")


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("agent", help=f"a name ({', '.join(agent_names())}), a run folder or a model file")
    parser.add_argument("--env", choices=sorted(POPULATIONS), default="MeanField", help="default MeanField")
    parser.add_argument("--action", choices=["price", "tilt", "policy"], default="tilt", help="mode (default tilt)")
    parser.add_argument("--k", type=float, help="evaluate on a release with this concentration instead of the truth")
    parser.add_argument("--expect", type=float, help="noise that a policy expects (default --k or --solve-on)")
    parser.add_argument("--solve-on", type=float, metavar="K", help="plan on a release with this concentration")
    parser.add_argument("--release-seed", type=int, default=0, help="seed of the releases (default 0)")
    parser.add_argument("--steps", type=int, help="training budget of a learner made by name")
    parser.add_argument("--episodes", type=int, default=2000, help="episodes in finite populations (default 2000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the episodes and of training (default 0)")
    parser.add_argument("--folder", type=Path, default=Path("runs"), help="load models from here only (default runs)")
    parser.add_argument("--algo", help="algorithm of a model file that has no config.json beside it")
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    add_data_arguments(parser)
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Evaluate one agent."""
    args = parse(argv)
    try:
        check_count(args.episodes, "--episodes", 2)
        check_count(args.seed, "--seed", 0)
        model = load_model(args)
        env = EnsembleEnv(model, POPULATIONS[args.env], args.action, k=args.k, release_seed=args.release_seed)
        from rich.console import Console

        with Console(stderr=True).status(f"evaluating {args.agent}"):
            result = evaluate(get_agent(args, env), env, episodes=args.episodes, seed=args.seed)
        show(args.agent, env, model, result)
        if args.json:
            with atomic_write(args.json) as stream:
                json.dump({"agent": args.agent, "environment": args_title(env), **result.to_dict()}, stream, indent=1)
    except (ValueError, ImportError, FileNotFoundError) as error:
        print(f"evaluate: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
