"""Two studies of what privacy costs: the frontier of score against ε, and where each lost dollar went."""

from __future__ import annotations

import argparse
import importlib
import json
from pathlib import Path
from typing import Any

from dp_ensemble_env._files import atomic_write
from dp_ensemble_env._progress import Progress
from dp_ensemble_env.cli import options
from dp_ensemble_env.cli.shell import Parser
from dp_ensemble_env.reporting.tables import show_table, write_csv

FRONTIER_WORDS = (
    "Scores deployed on the true behaviour as a tilt, mean / worst over the draws. ε = 0 is a plan on a public guess, "
    "made without data. Participants are simulated; one participant's whole record is protected (add or remove)."
)
REGRET_WORDS = (
    "Dollars per building below the optimum, split exactly; plans are deployed as tilts. 'without data' is the score "
    "of a plan on a public guess, ε = 0. Computed with the true behaviour: for the owner of the data."
)


# ------------------------------------------------------------------ frontier
def run_frontier(args: argparse.Namespace) -> int:
    """Measure, draw and write the frontier."""
    from dp_ensemble_env.experiments import frontier

    importlib.import_module("matplotlib")  # learn of a missing extra before the work
    settings = frontier.FrontierSettings(
        scenario=args.scenario,
        instances=tuple(args.instances),
        heterogeneity=tuple(args.heterogeneity),
        participants=tuple(args.participants),
        epsilons=tuple(args.epsilons),
        delta=args.delta,
        mechanisms=tuple(args.mechanisms),
        draws=args.draws,
        seed=args.seed,
    )
    args.output.mkdir(parents=True, exist_ok=True)
    fleets = len(settings.instances) * len(settings.heterogeneity) * len(settings.participants)
    done: list[str] = []
    with Progress("measuring", fleets) as monitor:

        def report(words: str) -> None:
            monitor.stage(words)
            monitor.advance(len(done))
            done.append(words)

        found = frontier.measure(settings, report)
        monitor.stage("drawing")
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
        ("instances", whole(), [0], "instances of the scenario"),
        ("heterogeneity", positive, [30.0], "κ: the smaller, the more participants differ"),
        ("participants", whole(1), [100, 300, 1000, 4000, 10_000], "numbers of participants"),
        ("epsilons", positive, [0.5, 1.0, 2.0, 4.0], "targets ε"),
    )
    for name, kind, default, words in numbers:
        parser.add_argument(f"--{name}", type=kind, nargs="+", default=default, metavar="N", help=words)
    words = "mechanisms: gaussian, laplace, posterior, dirichlet"
    parser.add_argument("--mechanisms", nargs="+", default=["gaussian"], metavar="NAME", help=words)
    parser.add_argument("--delta", type=positive, default=1e-6, metavar="D", help="delta")
    parser.add_argument("--draws", type=whole(1), default=20, metavar="N", help="releases at each point")
    options.add(parser, "scenario", scenario="campus-event")
    options.add(parser, "output", "seed", output=Path("runs/frontier"))


# ------------------------------------------------------------------ regret
def run_regret(args: argparse.Namespace) -> int:
    """Split the losses of plans, and of a learner if one is asked for, made on releases."""
    from dp_ensemble_env.agents import make_agent
    from dp_ensemble_env.envs.ensemble import EnsembleEnv
    from dp_ensemble_env.experiments import regret
    from dp_ensemble_env.experiments.problem import draw_release
    from dp_ensemble_env.privacy.fleet import Fleet
    from dp_ensemble_env.privacy.mechanisms import mechanism

    importlib.import_module("matplotlib")
    problem = options.load_problem(args)
    model = problem.model
    rows = []
    args.output.mkdir(parents=True, exist_ok=True)
    with Progress("splitting", len(args.specs)) as monitor:
        fleet = sample = None
        if args.participants:
            monitor.stage(f"simulating {args.participants:,} participants")
            fleet = Fleet.simulate(model, args.participants, args.seed, heterogeneity=args.heterogeneity)
            sample = regret.sample_matrix(fleet)
        for number, spec in enumerate(args.specs):
            monitor.stage(f"{spec}, {args.releases} releases")
            parts = []
            for seed in range(args.seed, args.seed + args.releases):
                release = draw_release(spec, model, seed) if fleet is None else mechanism(spec).release(fleet, seed)
                agent = None
                if args.learner is not None:
                    private = EnsembleEnv(model.with_default(release.matrix), action=args.action)
                    budget = {"transitions" if args.learner == "z-learning" else "steps": args.steps}
                    agent = make_agent(args.learner, private, seed=seed, **(budget if args.steps else {}))
                parts.append(regret.split_regret(model, release, sample=sample, agent=agent, action=args.action))
            name = spec if args.learner is None else f"{args.learner} on {spec}"
            rows.append(regret.mean_regret(name, parts))
            monitor.advance(number + 1)
        suffix = "" if problem.settings.meter is None else "-private"
        picture = regret.draw_regrets(rows, args.output / f"regret{suffix}.png")
    show_table(
        "Where the dollars per building went",
        regret.HEADINGS,
        [row.cells() for row in rows],
        left=("controller",),
        notes=(REGRET_WORDS,),
    )
    _write_json(args.output / f"regret{suffix}.json", {"regrets": [row.to_dict() for row in rows]})
    print(f"Picture: {picture}\nTable:   {args.output}/regret{suffix}.json")
    return 0


def declare_regret(parser: Parser) -> None:
    """Declare the options of the split."""
    whole, positive = options.whole, options.positive
    specs = ["public", "dirichlet:k=50", "dirichlet:k=50,floor=0.05"]
    words = "mechanisms to make the controllers on"
    parser.add_argument("--specs", nargs="+", default=specs, metavar="SPEC", help=words)
    words = "simulate this many participants; 0: draw from the matrix itself"
    parser.add_argument("--participants", type=whole(), default=0, metavar="N", help=words)
    words = "κ: the smaller, the more participants differ"
    parser.add_argument("--heterogeneity", type=positive, default=30.0, metavar="K", help=words)
    parser.add_argument("--releases", type=whole(1), default=5, metavar="N", help="releases of each mechanism")
    parser.add_argument("--learner", metavar="NAME", help="a learner instead of the exact plan, such as z-learning")
    parser.add_argument("--steps", type=whole(1), metavar="N", help="its training budget (default: as tuned)")
    options.add(parser, *options.PROBLEM, "action", action="tilt")
    options.add(parser, "output", "seed", output=Path("runs/regret"))


def _write_json(path: Path, content: dict[str, Any]) -> None:
    with atomic_write(path) as stream:
        json.dump(content, stream, indent=1)
        stream.write("\n")
