"""Two studies of what privacy costs: the frontier of score against ε, and where each lost dollar went."""

from __future__ import annotations

import argparse
import importlib
import json
from pathlib import Path
from typing import Any

from dp_ensemble_env.cli import old_options as options
from dp_ensemble_env.cli.shell import Parser, keeping
from dp_ensemble_env.reporting.tables import show_table, write_csv
from dp_ensemble_env.tools.console import Progress
from dp_ensemble_env.tools.files import atomic_write, check_writable
from dp_ensemble_env.tools.validation import check_choice

FRONTIER_WORDS = (
    "Scores deployed on the true behaviour as a tilt, mean / worst over the draws. ε = 0 is a plan on a public guess, "
    "made without data. Participants are simulated; one participant's whole record is protected (add or remove)."
)
REGRET_WORDS = (
    "Dollars per building below the optimum, split exactly; plans are deployed as tilts. 'without data' is the score "
    "of a plan on a public guess, ε = 0; ε of one release is at δ = 1e-6 (the paper's mechanism: for h = 0.03). "
    "Computed with the true behaviour: for the owner of the data."
)
DAYS = "days to simulate for each participant (a whole summer where it only moves between levels)"


# ------------------------------------------------------------------ frontier
def run_frontier(args: argparse.Namespace) -> int:
    """Measure, draw and write the frontier."""
    from dp_ensemble_env.experiments.studies import frontier

    importlib.import_module("matplotlib")  # learn of a missing extra before the work
    settings = frontier.FrontierSettings(
        scenario=args.scenario,
        instances=tuple(args.instance),
        heterogeneity=tuple(args.heterogeneity),
        participants=tuple(args.participants),
        epsilons=tuple(args.epsilons),
        delta=args.delta,
        mechanisms=tuple(args.mechanisms),
        draws=args.releases,
        days=args.days,
        seed=args.seed,
    )
    check_writable(args.output, folder=True)
    with Progress("measuring") as monitor, keeping(lambda: "nothing was written"):
        found = frontier.measure(settings, monitor)
        monitor.stage("drawing")
        args.output.mkdir(parents=True, exist_ok=True)
        picture = frontier.plot(found, args.output / "frontier.png")
    headings, rows = frontier.table(found)
    show_table("Score against ε", headings, rows, left=("mechanism",), keep=4, notes=(FRONTIER_WORDS,))
    write_csv(args.output / "frontier.csv", headings, rows)
    _write_json(args.output / "frontier.json", frontier.to_json(settings, found))
    print(f"Picture: {picture}\nTables:  {args.output}/frontier.csv, frontier.json")
    return 0


def declare_frontier(parser: Parser) -> None:
    """Declare the options of the frontier."""
    whole, positive = options.whole, options.positive
    numbers: tuple[tuple[str, Any, list[Any], str], ...] = (
        ("instance", whole(0, 999_999), [0], "which of the scenario's training instances"),
        ("heterogeneity", positive, [30.0], "κ: a smaller value makes participants differ more"),
        ("participants", whole(1), [100, 300, 1000, 4000, 10_000], "numbers of participants"),
        ("epsilons", positive, [0.5, 1.0, 2.0, 4.0], "targets ε"),
    )
    for name, kind, default, words in numbers:
        parser.add_argument(f"--{name}", type=kind, nargs="+", default=default, metavar="N", help=words)
    words = "mechanisms: gaussian, laplace, posterior, dirichlet"
    parser.add_argument("--mechanisms", nargs="+", default=["gaussian"], metavar="NAME", help=words)
    parser.add_argument("--delta", type=positive, default=1e-6, metavar="D", help="delta")
    parser.add_argument("--releases", type=whole(1), default=20, metavar="N", help="releases at each point")
    parser.add_argument("--days", type=whole(1), default=30, metavar="N", help=DAYS)
    options.add(parser, "scenario", scenario="campus-event")
    options.add(parser, "output", "seed", output=Path("runs/frontier"))


# ------------------------------------------------------------------ regret
def run_regret(args: argparse.Namespace) -> int:
    """Split the losses of plans, and of a learner if one is asked for, made on releases."""
    from dp_ensemble_env.agents import agent_names
    from dp_ensemble_env.envs import actions
    from dp_ensemble_env.experiments.studies import regret
    from dp_ensemble_env.privacy.simulation import simulated

    importlib.import_module("matplotlib")
    problem = options.load_problem(args)
    model = problem.model
    specs = regret.default_specs(model) if args.specs is None else args.specs
    number = regret.default_participants(specs) if args.participants is None else args.participants
    if not number and regret.default_participants(specs):
        raise ValueError("--participants is 0, but a mechanism protects participants; simulate some, or leave it out.")
    check_choice(args.action, "--action", actions.names())
    if args.learner is not None:
        check_choice(args.learner, "--learner", agent_names())
    check_writable(args.output, folder=True)
    rows: list[regret.Regret] = []
    with Progress("splitting") as monitor, keeping(lambda: "nothing was written"):
        fleet = None
        if number:
            monitor.stage(f"simulating {number:,} participants")
            fleet = simulated(model, number, args.seed, heterogeneity=args.heterogeneity, days=args.days)
        monitor.stage("splitting", len(specs) * args.releases)
        for spec in specs:
            parts = []
            for seed in range(args.seed, args.seed + args.releases):
                parts.append(_split(args, model, spec, fleet, seed))
                monitor.advance(len(rows) * args.releases + len(parts), spec)
            name = spec if args.learner is None else f"{args.learner} on {spec}"
            rows.append(regret.mean_regret(name, parts))
        suffix = "" if problem.settings.meter is None else "-private"
        monitor.stage("drawing")
        args.output.mkdir(parents=True, exist_ok=True)
        picture = regret.draw_regrets(rows, args.output / f"regret{suffix}.png")
    show_table(
        "Where the dollars per building went",
        regret.HEADINGS,
        [row.cells() for row in rows],
        left=("controller",),
        keep=0,  # so that all columns stand side by side
        notes=(REGRET_WORDS,),
    )
    _write_json(args.output / f"regret{suffix}.json", {"regrets": [row.to_dict() for row in rows]})
    print(f"Picture: {picture}\nTable:   {args.output}/regret{suffix}.json")
    return 0


def _split(args: argparse.Namespace, model: Any, spec: str, fleet: Any, seed: int) -> Any:
    """Draw one release, from the participants where the mechanism takes them, and split the loss of what it led to."""
    from dp_ensemble_env.agents import make_agent
    from dp_ensemble_env.envs.ensemble import EnsembleEnv
    from dp_ensemble_env.experiments.studies import regret
    from dp_ensemble_env.scenarios.problem import draw_release

    release, sample = draw_release(spec, model, seed, fleet=fleet), None
    if fleet is not None and not spec.startswith("dirichlet"):  # which is drawn from the true behaviour
        sample = fleet.remembered("sample", lambda: regret.sample_matrix(fleet, model.guess))
    agent = None
    if args.learner is not None:
        private = EnsembleEnv(model.with_default(release.matrix), action=args.action)
        budget = {"steps": args.steps}
        agent = make_agent(args.learner, private, seed=seed, **(budget if args.steps else {}))
    return regret.split_regret(model, release, sample=sample, agent=agent, action=args.action)


def declare_regret(parser: Parser) -> None:
    """Declare the options of the split."""
    whole, positive = options.whole, options.positive
    words = "mechanisms to make the controllers on (default: a few that suit the scenario)"
    parser.add_argument("--specs", nargs="+", metavar="SPEC", help=words)
    words = "participants to simulate (default: 4,000 if a mechanism protects them)"
    parser.add_argument("--participants", type=whole(), metavar="N", help=words)
    parser.add_argument("--days", type=whole(1), default=30, metavar="N", help=DAYS)
    words = "κ: a smaller value makes participants differ more"
    parser.add_argument("--heterogeneity", type=positive, default=30.0, metavar="N", help=words)
    parser.add_argument("--releases", type=whole(1), default=5, metavar="N", help="releases of each mechanism")
    parser.add_argument("--learner", metavar="NAME", help="a learner instead of the exact plan, such as z-learning")
    parser.add_argument("--steps", type=whole(1), metavar="N", help="its training budget (default: as tuned)")
    options.add(parser, *options.PROBLEM, "action", action="tilt", dynamics="pooled")
    options.add(parser, "output", "seed", output=Path("runs/regret"))


def _write_json(path: Path, content: dict[str, Any]) -> None:
    with atomic_write(path) as stream:
        json.dump(content, stream, indent=1)
        stream.write("\n")
