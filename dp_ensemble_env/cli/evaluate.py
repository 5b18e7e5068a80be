"""`dp-ensemble evaluate`: score a named agent, or a run."""

from __future__ import annotations

import argparse
import importlib
import json
from pathlib import Path
from typing import Any

from dp_ensemble_env import scenarios
from dp_ensemble_env.agents import agent_names, evaluate, evaluate_split, make_agent
from dp_ensemble_env.agents.hyperparams import ALGORITHMS
from dp_ensemble_env.cli import old_options as options
from dp_ensemble_env.cli.shell import Parser, did_you_mean, execute
from dp_ensemble_env.control.policies import POLICIES
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.experiments.deployment import Deployed, deploy
from dp_ensemble_env.reporting.score import Outcome
from dp_ensemble_env.reporting.tables import show_table, show_text
from dp_ensemble_env.scenarios.problem import Problem, ProblemSettings, dirichlet_spec, draw_release
from dp_ensemble_env.tools.console import Progress
from dp_ensemble_env.tools.files import atomic_write, check_writable
from dp_ensemble_env.tools.validation import check_choice

DESCRIPTION = """Score a named agent, or the agent of a run folder or model file.

The score is 0 for the uncontrolled ensemble and 100 for the exact optimum of the environment it is measured in. The
mean field is evaluated exactly over all start states; finite populations with seeded episodes and standard errors.

A run folder remembers the environment it was trained in, so a run needs no option; options that you give override
it.

With --split the agent is scored on a fixed set of instances, each against its own optimum:
interquartile mean, 95 % bootstrap interval, and the gap to the training instances. A run plays them as it is; an agent
by name is made anew on each."""
EXAMPLES = (
    "dp-ensemble evaluate standard",
    "dp-ensemble evaluate runs/ppo-mean-field-price-seed0",
    "dp-ensemble evaluate digamma --action policy --k 50",
    "dp-ensemble evaluate standard --solve-on 50 --action policy",
    "dp-ensemble evaluate best-price --meter meter.csv --unit kW",
    "dp-ensemble evaluate best-price --scenario spot --split test",
    "dp-ensemble evaluate standard --animate event.gif",
)
#: Options that describe the environment, which a run folder remembers.
REMEMBERED = ("population", "action", "privacy", "k", "floor", "release-seed")


def build_parser() -> Parser:
    """Declare the options."""
    parser = Parser(prog="dp-ensemble evaluate", description=DESCRIPTION, examples=EXAMPLES)
    parser.add_argument("agent", metavar="AGENT", help=f"run folder, model file, or one of {', '.join(agent_names())}")
    numbers: dict[str, Any] = {"type": options.positive, "metavar": "K"}
    parser.add_argument("--expect", help="noise that a policy expects (default --k or --solve-on)", **numbers)
    parser.add_argument("--solve-on", help="plan on a release with this k, score on the truth (default: no)", **numbers)
    whole = options.whole
    parser.add_argument("--steps", type=whole(1), metavar="N", help="budget of a learner by name (default: as tuned)")
    words = "episodes, where chance plays a part (default 2000; 512 in a mean field)"
    parser.add_argument("--episodes", type=whole(2), metavar="N", help=words)
    words = "score a whole set of instances: train, validation or test (default: one instance)"
    parser.add_argument("--split", choices=scenarios.SPLITS, metavar="SET", help=words)
    words = "with --split, only the first N of each set (default: all)"
    parser.add_argument("--instances", type=whole(1), metavar="N", help=words)
    words = "load a Stable-Baselines3 model.zip, which runs the code in it (run folders do not need this)"
    parser.add_argument("--allow-code", action="store_true", help=words)
    words = "with --allow-code, load from this folder only"
    parser.add_argument("--models", type=Path, default=Path("runs"), metavar="FOLDER", help=words)
    parser.add_argument("--algo", help="algorithm of a model file that has no config.json beside it")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the result to this file")
    words = "also write one episode beside the uncontrolled one, as a moving picture (.gif, .png or .webp)"
    parser.add_argument("--animate", type=Path, metavar="FILE", help=words)
    options.add(parser, *options.PROBLEM, *REMEMBERED)
    options.add(parser, "seed")
    return parser


# ------------------------------------------------------------------ environment
def given_options(args: argparse.Namespace) -> list[str]:
    """Name the options of the environment that were given, be it with the value of their default."""
    names = (*options.PROBLEM, *REMEMBERED)
    unset = argparse.Namespace(**dict.fromkeys((name.replace("-", "_") for name in names), argparse.SUPPRESS))
    found = build_parser().parse_args(args.words, unset)
    return [name for name in names if getattr(found, name.replace("-", "_")) is not argparse.SUPPRESS]


def remembered(args: argparse.Namespace) -> dict[str, Any]:
    """Return how the environment of a run was made, empty for an agent by name and for a file without a run."""
    if args.agent in agent_names() or not Path(args.agent).exists():
        return {}
    home = _home(args)
    if not (home / "config.json").exists():
        return {}
    from dp_ensemble_env.agents.runs import remembered_environment

    return remembered_environment(home / "config.json")


def make_env(args: argparse.Namespace) -> tuple[EnsembleEnv, Problem]:
    """Make the environment of the options, or of the run; options that are given overrule the run's."""
    given, run = given_options(args), remembered(args)
    if not run:
        problem = options.load_problem(args)
        spec, seed = options.privacy_spec(args), args.release_seed
        return EnsembleEnv(problem.model, args.population, args.action, privacy=spec, release_seed=seed), problem
    if given:
        words = ", ".join(f"--{name}" for name in given)
        options.say(f"{words} override{'s' * (len(given) == 1)} what {args.agent} was trained with.")
    if set(given) & set(options.PROBLEM):
        problem = options.load_problem(args)
    else:
        problem = ProblemSettings.from_dict(run["problem"]).build()
        options.say_notes(problem)
    private = set(given) & {"privacy", "k", "floor"}
    env = EnsembleEnv(
        problem.model,
        args.population if "population" in given else run["population"],
        args.action if "action" in given else run["action"],
        privacy=options.privacy_spec(args) if private else _privacy(args, run, given),
        release_seed=args.release_seed if "release-seed" in given else run["release_seed"],
    )
    if env.release is not None and not given:
        _check_release(args, env, run["problem"].get("meter"))
    return env, problem


def _home(args: argparse.Namespace) -> Path:
    return Path(args.agent) if Path(args.agent).is_dir() else Path(args.agent).parent


def _privacy(args: argparse.Namespace, run: dict[str, Any], given: list[str]) -> str | Path | None:
    """Return the release that the run folder keeps, if nobody can draw it again, or the run's mechanism."""
    kept = _home(args) / "release.json"
    drawn_again = run["release_seed"] is not None or "release-seed" in given
    return run["privacy"] if drawn_again or not kept.exists() else kept


def _check_release(args: argparse.Namespace, env: EnsembleEnv, meter: str | None) -> None:
    """Refuse to evaluate on another release than the run's: it is drawn again from the data, which may have changed."""
    from dp_ensemble_env.privacy.ledger import PrivacyLedger

    file = _home(args) / "ledger.json"
    assert env.release is not None
    if not file.exists():
        raise ValueError(f"the ledger of the run, {file}, is gone; restore it from a copy.")
    if not PrivacyLedger.from_json(file.read_text(encoding="utf-8")).knows(env.release):
        source = "the scenario" if meter is None else f"the meter file {meter}"
        raise ValueError(
            f"{source} has changed since: its release is not the one that {args.agent} was trained on; restore it, or "
            "train again."
        )


# ------------------------------------------------------------------ agent
def get_agent(args: argparse.Namespace, env: EnsembleEnv) -> Any:
    """Make the agent by name, or load it from a run folder or model file."""
    if args.agent not in agent_names():
        return load(args)
    settings: dict[str, Any] = {}
    if args.agent in (*POLICIES, "best-price") and args.solve_on is not None:
        settings["release"] = draw_release(dirichlet_spec(args.solve_on), env.model, args.release_seed)
    if args.agent in POLICIES and args.agent != "standard" and args.expect is not None:
        settings["k"] = args.expect
    if args.steps is not None:
        settings["steps"] = args.steps
        settings["seed"] = args.seed
    return make_agent(args.agent, env, **settings)


def load(args: argparse.Namespace) -> Any:
    """Load the agent of a run folder or model file."""
    from dp_ensemble_env.agents.sb3 import load_agent

    return load_agent(args.agent, args.models, algo=args.algo, allow_code=args.allow_code)


def title(env: EnsembleEnv) -> str:
    """Describe the environment in a few words."""
    loads = "the mean field" if env.population is None else f"{env.population} load{'s' * (env.population > 1)}"
    return f"{loads}, {env.action_mode} mode" + (f", on a release ({env.release.event.type})" if env.release else "")


def show(name: str, env: EnsembleEnv, result: Outcome, deployed: Deployed | None) -> None:
    """Print the report; of an agent in a private environment, what it does on the true behaviour comes first."""
    if deployed is not None:
        show_text(str(deployed))
    show_table(f"{name} in {title(env)}", ("", "", ""), result.lines())
    show_text(f"Privacy of the agent: {result.privacy}.")
    show_text(env.ledger.statement())


def run_split(args: argparse.Namespace) -> int:
    """Score an agent on the instances of a set, on their true behaviour."""
    given, run = given_options(args), remembered(args)
    settings = options.problem_settings(args)
    if run and not set(given) & set(options.PROBLEM):
        settings = ProblemSettings.from_dict(run["problem"])
    if settings != ProblemSettings(scenario=settings.scenario, instance=settings.instance):
        raise ValueError("--split takes the instances of a scenario as they are; leave --meter and changes to it out.")
    if args.agent in (*ALGORITHMS, "z-learning"):
        raise ValueError(
            f"{args.agent} would be trained on every instance anew; train it once with dp-ensemble train "
            "--instances 20 and give the folder of the run."
        )
    if set(given) & {"privacy", "k", "floor", "release-seed"} or args.solve_on is not None:
        raise ValueError("--split scores on the true behaviour of each instance; leave the release out.")
    if run.get("privacy") is not None:
        options.say("the agent was trained on a release, and is scored on the true behaviour.")
    population = run["population"] if run and "population" not in given else args.population
    action = run["action"] if run and "action" not in given else args.action
    agent = load(args) if args.agent not in agent_names() else lambda env: get_agent(args, env)
    with Progress(f"evaluating {args.agent}") as monitor:
        found = evaluate_split(
            agent,
            settings.scenario,
            args.split,
            population=population,
            action=action,
            instances=args.instances,
            episodes=args.episodes,
            seed=args.seed,
            monitor=monitor,
        )
        if args.json:
            with atomic_write(args.json) as stream:
                json.dump({"agent": args.agent, "population": population, "action": action, **found.to_dict()}, stream)
    made = "made on each instance" if args.agent in agent_names() else "as it was trained"
    show_table(
        f"{args.agent} on {settings.scenario}, {population}, {action} mode ({made})", ("", "", ""), found.lines()
    )
    return 0


def run(args: argparse.Namespace) -> int:
    """Evaluate one agent."""
    if args.agent not in agent_names() and not Path(args.agent).exists():
        hint = did_you_mean(args.agent, agent_names(), f"the agents are {', '.join(agent_names())}")
        raise ValueError(f"{args.agent!r} is neither an agent nor a run folder or model file; {hint}")
    if args.algo is not None:
        check_choice(args.algo, "--algo", ALGORITHMS)
        if args.agent in agent_names():
            raise ValueError("--algo belongs to a model file that does not say what it holds; leave it out.")
    for path in filter(None, (args.json, args.animate)):
        check_writable(path)
    if args.animate is not None:
        _check_animation(args)
    if args.split is not None:
        return run_split(args)
    if args.instances is not None:
        raise ValueError("--instances belongs to a set of instances; give --split test too.")
    with Progress(f"evaluating {args.agent}") as monitor:
        env, problem = make_env(args)
        agent = get_agent(args, env)
        result = evaluate(agent, env, episodes=args.episodes, seed=args.seed)
        deployed = deploy(agent, env, problem.model)
        if args.json:
            content = {"agent": args.agent, "environment": title(env), **result.to_dict()}
            content["deployed"] = None if deployed is None else deployed.to_dict()
            with atomic_write(args.json) as stream:
                json.dump(content, stream, indent=1)
        if args.animate:
            from dp_ensemble_env.reporting.animation import animate

            monitor.stage("drawing")
            animate(agent, env, args.animate, name=spoken_name(args.agent), seed=args.seed)
    show(args.agent, env, result, deployed)
    if args.animate:
        print(f"Animation: {args.animate}")
    return 0


def _check_animation(args: argparse.Namespace) -> None:
    """Learn of what is missing before the work."""
    from dp_ensemble_env.reporting.animation import check_suffix

    check_suffix(args.animate)
    if args.split is not None:
        raise ValueError("--animate shows one instance; leave --split out.")
    for module in ("pygame", "PIL"):
        importlib.import_module(module)


def spoken_name(agent: str) -> str:
    """Return what an agent is called in a picture: the exact plan is the optimum, a run its folder's name."""
    return "optimal" if agent == "standard" else Path(agent).name


def main(argv: list[str] | None = None) -> int:
    """Run the command."""
    return execute(build_parser, run, argv)
