"""Compare controllers on one demand-response event: table, CSV, JSON, pictures and one HTML page.

    dp-ensemble compare                          baselines and a PPO trained on the spot
    dp-ensemble compare --preset baselines       no training at all
    dp-ensemble compare --preset levels --jobs 2 every learner, several seeds (most of an hour)
    dp-ensemble compare --meter meter.csv --unit kW --stamp start --date 2018-07-02

Every controller is scored between 0 (uncontrolled) and 100 (the exact optimum of the environment it is scored in).
"Trained on private, deployed on true": the controller sees a release of the matrix only, and is scored on the true one.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dp_ensemble_env._files import atomic_write
from dp_ensemble_env._validation import check_count, check_positive
from dp_ensemble_env.agents import Evaluation, evaluate, make_agent
from dp_ensemble_env.agents.evaluation import seed_summary
from dp_ensemble_env.cli.options import add_data_arguments, load_model
from dp_ensemble_env.cost import cost_of_privacy, release_cost
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.experiments.comparison_report import PrivateRow, Row, show_all, write_all
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy.mechanisms.dirichlet import DirichletMechanism, Release

ANALYTICAL = ("standard", "taylor", "digamma", "average-sampled", "average-expansion", "average-exact")
PRACTICE = ("uncontrolled", "ad-hoc", "best-price")
#: Learners, with their action mode, that also take part in the private experiment.
PRIVATE_LEARNERS = (*((algo, "price") for algo in ("ppo", "sac", "td3", "tqc", "a2c", "dqn")), ("z-learning", "tilt"))
POPULATIONS = {"MeanField": "mean-field", "Buildings": "buildings", "SingleLoad": "single"}


@dataclass(frozen=True)
class Learner:
    """One learner to train: algorithm, environment, action mode, budget and seeds, and the level it should reach.

    With `stop` the training ends when the level is reached; otherwise the budget is used up.
    """

    algo: str
    env: str
    action: str
    steps: int
    seeds: int
    level: float | None = None
    stop: bool = False

    @property
    def title(self) -> str:
        """Name in tables."""
        return f"{self.algo}, {self.action}"


PRESETS: dict[str, list[Learner]] = {
    "baselines": [],
    "quick": [Learner("ppo", "MeanField", "price", 20_000, 1, 97, stop=True)],
    "levels": [
        Learner("ppo", "MeanField", "price", 50_000, 5, 97),
        Learner("sac", "MeanField", "price", 20_000, 3, 95),
        Learner("td3", "MeanField", "price", 20_000, 3, 95),
        Learner("tqc", "MeanField", "price", 20_000, 3, 95),
        Learner("a2c", "MeanField", "price", 100_000, 3),
        Learner("dqn", "MeanField", "price", 20_000, 3),
        Learner("ppo", "MeanField", "tilt", 1_000_000, 5, 90),
        Learner("trpo", "MeanField", "tilt", 400_000, 3),
        Learner("z-learning", "MeanField", "tilt", 50_000, 3, 95),
        Learner("sac", "MeanField", "tilt", 10_000, 3),
        Learner("td3", "MeanField", "tilt", 10_000, 3),
        Learner("tqc", "MeanField", "tilt", 10_000, 3),
        Learner("ppo", "SingleLoad", "price", 200_000, 5, 95),
        Learner("z-learning", "SingleLoad", "tilt", 20_000, 3, 95),
    ],
}


class Progress:
    """One line that says what is being done, and while something learns, a bar with its running score."""

    def __init__(self, bar: Any) -> None:
        self.bar = bar
        self.task = bar.add_task("comparing", total=None, status="")
        self.notes: list[str] = []  # what is to be said below the tables

    def say(self, text: str) -> None:
        """Name the step that begins."""
        self.bar.reset(self.task, total=None, description=text, status="")

    def learning(self, done: int, planned: int, score: float) -> None:
        """Report a learner's steps and its latest score."""
        self.training(done, planned, f"score {score:.1f}")

    def training(self, done: int, planned: int, status: str) -> None:
        """Report how much is done, and something about the latest of it."""
        self.bar.update(self.task, total=planned, completed=done, status=status)


# ------------------------------------------------------------------ measuring
def baseline_rows(
    model: EnsembleModel, env_name: str, k: float, seed: int, episodes: int, progress: Progress
) -> list[Row]:
    """Score everything that needs no training, in the action mode that plays every policy."""
    env = EnsembleEnv(model, POPULATIONS[env_name], "policy")
    rows = []
    for name in (*PRACTICE, *ANALYTICAL):
        progress.say(f"{name} in {env_name}")
        settings: dict[str, Any] = {} if name in (*PRACTICE, "standard") else {"k": k}
        if name == "average-sampled":
            settings["seed"] = seed
        try:
            agent = make_agent(name, env, **settings)
        except ValueError:
            if name != "average-expansion":
                raise
            note = f"{name} does not apply at k = {k:g}, where it gives a negative probability; average-exact does."
            progress.notes += [] if note in progress.notes else [note]
            continue
        rows.append(Row(name, env_name, evaluate(agent, env, episodes=episodes, seed=seed)))
    return rows


@dataclass(frozen=True)
class Job:
    """One training run: the learner, the seed, and the concentration of the release it sees (infinite: the truth)."""

    learner: Learner
    seed: int
    k: float = math.inf


@dataclass(frozen=True, eq=False)
class Trained:
    """What a training run came to: scored where it was trained (without noise), and in the mean field."""

    evaluation: Evaluation
    mean_field: Evaluation
    curve: list[tuple[int, float]]
    steps: int
    seconds: float


def train_and_score(
    job: Job, model: EnsembleModel, seed: int, episodes: int, report: Callable[[int, int, float], None] | None = None
) -> Trained:
    """Train on the truth or on a release, and score on the true dynamics."""
    learner, started = job.learner, time.perf_counter()
    seen = model
    if math.isfinite(job.k):
        seen = model.with_default(DirichletMechanism(job.k).release(model.default, seed).matrix)
    settings: dict[str, Any] = {"seed": job.seed}
    if learner.algo == "z-learning":
        settings["transitions"] = learner.steps
    else:
        settings.update(steps=learner.steps, progress=report, target_score=learner.level if learner.stop else None)
    agent: Any = make_agent(learner.algo, EnsembleEnv(seen, POPULATIONS[learner.env], learner.action), **settings)
    # Tilts and prices mean the same on every matrix, so what was learned is deployed as it is.
    home = EnsembleEnv(model, POPULATIONS[learner.env], learner.action)
    found = evaluate(agent, home, episodes=episodes, seed=10_000 + seed)
    field = found if learner.env == "MeanField" else evaluate(agent, EnsembleEnv(model, action=learner.action))
    steps = int(getattr(agent, "steps", 0) or learner.steps)
    return Trained(found, field, list(getattr(agent, "curve", [])), steps, time.perf_counter() - started)


def train_all(
    jobs: list[Job], model: EnsembleModel, args: argparse.Namespace, progress: Progress
) -> dict[Job, Trained]:
    """Run the training jobs, side by side if asked; the results do not depend on how many run at a time."""
    done: dict[Job, Trained] = {}
    if args.jobs == 1:
        for job in jobs:
            where = "the true dynamics" if math.isinf(job.k) else f"a release with k = {job.k:g}"
            progress.say(f"{job.learner.title} in {job.learner.env} on {where}, seed {job.seed}")
            done[job] = train_and_score(job, model, args.seed, args.episodes, progress.learning)
        return done
    # A forked copy of a process that has used threads may hang, so workers start afresh.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(args.jobs, mp_context=context) as pool:
        longest_first = sorted(jobs, key=lambda job: -job.learner.steps)
        futures = {pool.submit(train_and_score, job, model, args.seed, args.episodes): job for job in longest_first}
        progress.say(f"training {len(jobs)} learners, {args.jobs} at a time")
        for count, future in enumerate(as_completed(futures), 1):
            job = futures[future]
            done[job] = future.result()
            progress.training(count, len(jobs), f"{job.learner.title}: {done[job].evaluation.score:.1f}")
    return {job: done[job] for job in jobs}  # whatever finished first


def learner_rows(learners: Sequence[Learner], done: dict[Job, Trained]) -> list[Row]:
    """Gather the seeds of each learner that saw the true dynamics."""
    rows = []
    for learner in learners:
        runs = [run for job, run in done.items() if job.learner == learner and math.isinf(job.k)]
        scores = [run.evaluation.score for run in runs]
        middle = runs[int(np.argsort(scores)[len(scores) // 2])].evaluation
        row = Row(learner.title, learner.env, middle, seed_summary(scores), max(run.steps for run in runs))
        row.seconds, row.level, row.scores = sum(run.seconds for run in runs), learner.level, scores
        row.curves = [run.curve for run in runs]
        rows.append(row)
    return rows


def private_rows(
    model: EnsembleModel, ks: Sequence[float], done: dict[Job, Trained], releases: int, seed: int, progress: Progress
) -> list[PrivateRow]:
    """Make every controller on releases of the matrix, and score it on the true dynamics."""
    deploy = EnsembleEnv(model, action="policy")
    rows = []
    for k in ks:
        drawn: list[Release | None] = [None]
        if math.isfinite(k):
            drawn = [DirichletMechanism(k).release(model.default, seed + i) for i in range(releases)]
        for name in ("best-price", "standard", "taylor", "digamma", "average-exact"):
            progress.say(f"{name} on releases with k = {k:g}")
            settings = {} if name in ("best-price", "standard") or not math.isinf(k) else {"k": math.inf}
            found = [evaluate(make_agent(name, deploy, release=r, **settings), deploy) for r in drawn]
            rows.append(PrivateRow(name, k, [e.score for e in found], [e.gap for e in found]))
        progress.say(f"standard as a tilt, on releases with k = {k:g}")
        found = [_deploy_tilt(model, r) for r in drawn]
        rows.append(PrivateRow("standard, as a tilt", k, [e.score for e in found], [e.gap for e in found]))
        for job, run in done.items():
            first = Job(job.learner, seed, min(ks)) in done  # the learner that was trained on releases, too
            if job.k == k and job.seed == seed and first:
                rows.append(PrivateRow(job.learner.title, k, [run.mean_field.score], [run.mean_field.gap]))
    return rows


def _is_private_learner(learner: Learner) -> bool:
    return (learner.algo, learner.action) in PRIVATE_LEARNERS


def plan_jobs(learners: Sequence[Learner], ks: Sequence[float], seed: int) -> list[Job]:
    """List every training run: all seeds on the truth, and the first seed on a release for each finite k."""
    jobs = [Job(learner, seed + i) for learner in learners for i in range(learner.seeds)]
    finite = [k for k in ks if math.isfinite(k)]
    private: dict[str, Learner] = {}
    for learner in filter(_is_private_learner, learners):
        private.setdefault(learner.title, learner)
    return jobs + [Job(learner, seed, k) for learner in private.values() for k in finite]


def _deploy_tilt(model: EnsembleModel, release: Release | None) -> Evaluation:
    """Solve on the release, but deploy the attraction of each level instead of the transition matrix.

    The loads then follow their own true dynamics tilted by the plan, so the
    noise of the released rows is left behind and that of the value function remains.
    """
    private = model if release is None else model.with_default(release.matrix)
    return evaluate(make_agent("standard", EnsembleEnv(private, action="tilt")), EnsembleEnv(model, action="tilt"))


def analytical_costs(model: EnsembleModel, ks: Sequence[float], seed: int) -> dict[str, list[float]]:
    """Cost of privacy by theory, dollars per building from the initial distribution, for each finite k."""
    finite = [k for k in ks if math.isfinite(k)]
    costs = {
        name: [float(model.initial @ cost_of_privacy(model, k, name)[0]) for k in finite]
        for name in ("taylor", "digamma", "average-exact")
    }
    estimates = [release_cost(model, k, samples=500, rng=seed) for k in finite]
    costs["one release"] = [float(model.initial @ e.mean[0]) for e in estimates]
    return costs


# ------------------------------------------------------------------ command line
def parse(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=sorted(PRESETS), default="quick", help="learners to train (default quick)")
    parser.add_argument("--k", type=float, default=50.0, help="noise that the noise-aware policies expect (default 50)")
    ks, words = [10.0, 50.0, 200.0, math.inf], "releases to train on; none to leave it out (default 10 50 200 inf)"
    parser.add_argument("--private", type=float, nargs="*", default=ks, metavar="K", help=words)
    parser.add_argument("--releases", type=int, default=5, help="releases per concentration for planners (default 5)")
    parser.add_argument("--episodes", type=int, default=2000, help="episodes in finite populations (default 2000)")
    parser.add_argument("--jobs", type=int, default=1, help="training runs at a time (default 1)")
    parser.add_argument("--seed", type=int, default=0, help="first seed of everything random (default 0)")
    parser.add_argument("--output", type=Path, default=Path("runs/compare"), help="folder (default runs/compare)")
    add_data_arguments(parser)
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Run the comparison."""
    args = parse(argv)
    command = "dp-ensemble compare " + " ".join(sys.argv[1:] if argv is None else argv)
    try:
        check_positive(args.k, "--k")
        for k in args.private:
            check_positive(k, "--private", allow_inf=True)
        for name, least in (("releases", 1), ("episodes", 2), ("seed", 0), ("jobs", 1)):
            check_count(getattr(args, name), f"--{name}", least)
        with atomic_write(args.output / ".writable"):  # learn of a folder that cannot be written before the work
            pass
        (args.output / ".writable").unlink()
        model = load_model(args)
        page = run(args, model, command)
    except (ValueError, ImportError, FileNotFoundError) as error:
        print(f"compare: {error}", file=sys.stderr)
        return 2
    print(f"Page:     {page}\nPictures: {page.parent}/*.png\nTables:   {page.parent}/table.csv, comparison.json")
    return 0


def run(args: argparse.Namespace, model: EnsembleModel, command: str) -> Path:
    """Measure, print and write."""
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    learners = PRESETS[args.preset]
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[status]}"))
    console = Console(stderr=True)
    with Bar(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
        progress = Progress(bar)
        rows = baseline_rows(model, "MeanField", args.k, args.seed, args.episodes, progress)
        if args.preset == "levels":
            for name in ("Buildings", "SingleLoad"):
                rows += baseline_rows(model, name, args.k, args.seed, args.episodes, progress)
        done = train_all(plan_jobs(learners, args.private, args.seed), model, args, progress)
        rows += learner_rows(learners, done)
        private = private_rows(model, args.private, done, args.releases, args.seed, progress) if args.private else []
        costs = analytical_costs(model, args.private, args.seed) if private else {}
        progress.say("drawing")
        page = write_all(args.output, vars(args), model, rows, private, costs, command, progress.notes)
    show_all(rows, private, progress.notes)
    return page


if __name__ == "__main__":
    raise SystemExit(main())
