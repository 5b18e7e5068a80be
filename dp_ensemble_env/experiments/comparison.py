"""Compare controllers on one demand-response event.

Every controller is scored between 0 (uncontrolled) and 100 (the exact optimum of the environment it is scored in).
"Trained on private, deployed on true": the controller sees a release of the matrix only, and is scored on the true one.

::

    from dp_ensemble_env import campus_event
    from dp_ensemble_env.experiments.comparison import ComparisonSettings, compare

    result = compare(campus_event(), ComparisonSettings(learners=()))
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dp_ensemble_env import __version__
from dp_ensemble_env.agents import evaluate, make_agent
from dp_ensemble_env.agents.evaluation import seed_summary
from dp_ensemble_env.control.cost import cost_of_privacy, release_cost
from dp_ensemble_env.control.policies import as_tilt
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.experiments import workers
from dp_ensemble_env.experiments.comparison_report import PrivateRow, Row
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy.ledger import PrivacyLedger
from dp_ensemble_env.privacy.mechanisms import as_privacy
from dp_ensemble_env.privacy.release import Release
from dp_ensemble_env.privacy.statement import DEFAULT_DELTA
from dp_ensemble_env.reporting.score import Outcome, event_outcome
from dp_ensemble_env.scenarios.problem import dirichlet_spec, draw_release
from dp_ensemble_env.tools.console import Monitor, Silent
from dp_ensemble_env.tools.files import atomic_write
from dp_ensemble_env.tools.validation import check_count, check_positive

ANALYTICAL = ("standard", "taylor", "digamma", "average-sampled", "average-expansion", "average-exact")
PRACTICE = ("uncontrolled", "ad-hoc", "best-price")
#: Controllers that are made on releases; the last two expect noise of a known k.
PLANNED, EXPECTING = ("best-price", "standard"), ("taylor", "digamma", "average-exact")
#: Learners, with their action mode, that also take part in the private experiment.
PRIVATE_LEARNERS = (
    *((algo, "price") for algo in ("ppo", "sac", "td3", "tqc", "a2c", "dqn")),
    *((algo, "tilt") for algo in ("z-learning", "apg")),
)
POPULATIONS: dict[str, str | int] = {"mean-field": "mean-field", "100 loads": 100, "single": "single"}


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


PRESETS: dict[str, tuple[Learner, ...]] = {
    "baselines": (),
    "quick": (Learner("ppo", "mean-field", "price", 20_000, 1, 97, stop=True),),
    "levels": (
        Learner("ppo", "mean-field", "price", 50_000, 5, 97),
        Learner("sac", "mean-field", "price", 20_000, 3, 95),
        Learner("td3", "mean-field", "price", 20_000, 3, 95),
        Learner("tqc", "mean-field", "price", 20_000, 3, 95),
        Learner("a2c", "mean-field", "price", 100_000, 3),
        Learner("dqn", "mean-field", "price", 20_000, 3),
        Learner("ppo", "mean-field", "tilt", 1_000_000, 5, 98),
        Learner("apg", "mean-field", "tilt", 200_000, 5, 99.5),
        Learner("trpo", "mean-field", "tilt", 400_000, 3),
        Learner("z-learning", "mean-field", "tilt", 50_000, 3, 95),
        Learner("sac", "mean-field", "tilt", 100_000, 3, 95, stop=True),
        Learner("td3", "mean-field", "tilt", 100_000, 3, 95, stop=True),
        Learner("tqc", "mean-field", "tilt", 100_000, 3, 95, stop=True),
        Learner("ppo", "single", "price", 200_000, 5, 95),
        Learner("z-learning", "single", "tilt", 20_000, 3, 95),
    ),
}


@dataclass(frozen=True)
class ComparisonSettings:
    """What is compared, and how thoroughly.

    Attributes
    ----------
    learners : tuple of Learner
        What is trained on the spot.
    k : float
        Noise that the noise-aware policies expect.
    private : tuple of float
        Concentrations of the releases that controllers are made on; infinite is the truth, and none leaves it out.
    privacy : tuple of str
        Further mechanisms to make them on, as specs.
    participants : int
        Simulated participants that mechanisms draw from which protect them.
    releases : int
        Releases of each for the controllers that plan.
    episodes : int
        Episodes in finite populations.
    environments : tuple of str
        Where the controllers that do not learn are scored: mean-field, 100 loads, single.
    seed : int
        First seed of everything random.
    jobs : int
        Training runs at a time; the results do not depend on it.
    """

    learners: tuple[Learner, ...] = PRESETS["quick"]
    k: float = 50.0
    private: tuple[float, ...] = (10.0, 50.0, 200.0, math.inf)
    privacy: tuple[str, ...] = ()
    participants: int = 4000
    releases: int = 5
    episodes: int = 2000
    environments: tuple[str, ...] = ("mean-field",)
    seed: int = 0
    jobs: int = 1

    def __post_init__(self) -> None:
        check_positive(self.k, "k")
        for k in self.private:
            check_positive(k, "private", allow_inf=True)
        for spec in self.privacy:
            as_privacy(spec)
        for name, least in (("participants", 1), ("releases", 1), ("episodes", 2), ("seed", 0), ("jobs", 1)):
            check_count(getattr(self, name), name, least)

    @property
    def sources(self) -> list[tuple[float, str | None]]:
        """Every mechanism that controllers are made on: its k (NaN if it has none) and its spec (None: the truth)."""
        of_k = [(k, dirichlet_spec(k) if math.isfinite(k) else None) for k in self.private]
        return [*of_k, *((math.nan, spec) for spec in self.privacy)]


@dataclass
class Compared:
    """The rows of a comparison, and notes to go below its tables."""

    rows: list[Row] = field(default_factory=list)
    private: list[PrivateRow] = field(default_factory=list)
    costs: dict[str, list[float]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def compare(
    model: EnsembleModel,
    settings: ComparisonSettings = ComparisonSettings(),  # noqa: B008 - frozen
    monitor: Monitor | None = None,
    store: Store | None = None,
) -> Compared:
    """Score baselines and learners on the truth, and both again made on releases.

    Parameters
    ----------
    model : EnsembleModel
    settings : ComparisonSettings
    monitor : Monitor, optional
        Told what is being done.
    store : Store, optional
        Keeps what was trained, for a comparison that is interrupted.
    """
    monitor = monitor or Silent()
    for spec in settings.privacy:
        # A mechanism that cannot be drawn is refused before the work.
        draw_release(spec, model, settings.seed, settings.participants)
    found = Compared()
    for name in settings.environments:
        found.rows += baseline_rows(model, name, settings, monitor, found.notes)
    done = train_all(plan_jobs(settings), model, settings, monitor, store)
    found.rows += learner_rows(settings.learners, done)
    if settings.sources:
        found.private = private_rows(model, settings, done, monitor)
        monitor.stage("cost of privacy by theory")
        found.costs = analytical_costs(model, settings.private, settings.seed)
    return found


# ------------------------------------------------------------------ measuring
def baseline_rows(
    model: EnsembleModel, env_name: str, settings: ComparisonSettings, monitor: Monitor, notes: list[str]
) -> list[Row]:
    """Score everything that needs no training, in the action mode that plays every policy."""
    env = EnsembleEnv(model, POPULATIONS[env_name], "policy")
    rows = []
    for name in (*PRACTICE, *ANALYTICAL):
        monitor.stage(f"{name} in {env_name}")
        making: dict[str, Any] = {} if name in (*PRACTICE, "standard") else {"k": settings.k}
        if name == "average-sampled":
            making["seed"] = settings.seed
        try:
            agent = make_agent(name, env, **making)
        except ValueError:
            if name != "average-expansion":  # the one policy that does not exist for every k
                raise
            note = f"{name} does not apply at k = {settings.k:g}, where it gives a negative probability; "
            note += "average-exact does."
            notes += [] if note in notes else [note]
            continue
        rows.append(Row(name, env_name, evaluate(agent, env, episodes=settings.episodes, seed=settings.seed)))
    return rows


@dataclass(frozen=True)
class Job:
    """One training run: the learner, the seed, and the mechanism whose release it sees (None: the truth)."""

    learner: Learner
    seed: int
    privacy: str | None = None

    @property
    def title(self) -> str:
        """Words for progress."""
        where = "the true dynamics" if self.privacy is None else f"a release ({self.privacy})"
        return f"{self.learner.title} in {self.learner.env} on {where}, seed {self.seed}"


@dataclass(frozen=True, eq=False)
class Trained:
    """What a training run came to: scored where it was trained (without noise), and in the mean field."""

    evaluation: Outcome
    mean_field: Outcome
    curve: list[tuple[int, float]]
    steps: int
    seconds: float


def train_and_score(
    job: Job,
    shared: tuple[EnsembleModel, ComparisonSettings],
    report: Callable[[tuple[int, float]], None] | None = None,
) -> Trained:
    """Train on the truth or on a release, and score on the true dynamics."""
    (model, settings), learner, started = shared, job.learner, time.perf_counter()
    seen = model
    if job.privacy is not None:
        seen = model.with_default(draw_release(job.privacy, model, settings.seed, settings.participants).matrix)
    said = [0.0]

    def progress(done: int, planned: int, score: float) -> None:
        if report is not None and time.monotonic() - said[0] > 0.2:
            said[0] = time.monotonic()
            report((done, score))

    making: dict[str, Any] = {"seed": job.seed}
    if learner.algo == "z-learning":
        making["steps"] = learner.steps
    else:
        making.update(steps=learner.steps, progress=progress, target_score=learner.level if learner.stop else None)
    agent: Any = make_agent(learner.algo, EnsembleEnv(seen, POPULATIONS[learner.env], learner.action), **making)
    # Tilts and prices mean the same on every matrix, so what was learned is deployed as it is.
    home = EnsembleEnv(model, POPULATIONS[learner.env], learner.action)
    found = evaluate(agent, home, episodes=settings.episodes, seed=10_000 + settings.seed)
    field = found if learner.env == "mean-field" else evaluate(agent, EnsembleEnv(model, action=learner.action))
    steps = int(getattr(agent, "steps", 0) or learner.steps)
    return Trained(found, field, list(getattr(agent, "curve", [])), steps, time.perf_counter() - started)


def train_all(
    jobs: list[Job], model: EnsembleModel, settings: ComparisonSettings, monitor: Monitor, store: Store | None
) -> dict[Job, Trained]:
    """Run the training jobs, side by side if asked; the results do not depend on how many run at a time."""
    done = {} if store is None else {job: found for job in jobs if (found := store.load(job)) is not None}
    todo = sorted((job for job in jobs if job not in done), key=lambda job: -job.learner.steps)  # longest first
    reached: dict[Job, float] = {}
    monitor.stage(f"training {len(todo)} learners", sum(job.learner.steps for job in todo))

    def note(job: Job, news: tuple[int, float]) -> None:
        reached[job] = min(news[0], job.learner.steps)
        monitor.advance(sum(reached.values()), f"{job.learner.title}: score {news[1]:.1f}")

    with contextlib.closing(_run_jobs(todo, (model, settings), note)) as results:
        for job, found in results:
            if isinstance(found, workers.Died):
                raise RuntimeError(f"{job.title}: {found}")
            done[job] = found
            if store is not None:
                store.save(job, found)
            note(job, (job.learner.steps, found.evaluation.score))
    return {job: done[job] for job in jobs}  # whatever finished first


def _run_jobs(
    jobs: list[Job], shared: tuple[EnsembleModel, ComparisonSettings], note: Callable[[Job, Any], None]
) -> Generator[tuple[Job, Any], None, None]:
    if shared[1].jobs > 1:
        yield from workers.in_processes(train_and_score, jobs, shared, shared[1].jobs, note)
        return
    for job in jobs:
        yield job, train_and_score(job, shared, lambda news, job=job: note(job, news))  # type: ignore[misc]


class Store:
    """A folder with what was trained, so that an interrupted comparison can go on."""

    def __init__(self, folder: Path, model: EnsembleModel, settings: ComparisonSettings) -> None:
        self.folder = folder
        self._base = [__version__, model.fingerprint, settings.seed, settings.episodes]

    def _path(self, job: Job) -> Path:
        text = json.dumps([*self._base, asdict(job)], sort_keys=True)
        return self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.json"

    def load(self, job: Job) -> Trained | None:
        """Return what a job came to before, or None."""
        try:
            found = json.loads(self._path(job).read_text(encoding="utf-8"))
            curve = [(int(steps), float(score)) for steps, score in found["curve"]]
            scored = _outcome(found["evaluation"]), _outcome(found["mean_field"])
            return Trained(*scored, curve, found["steps"], found["seconds"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def save(self, job: Job, found: Trained) -> None:
        """Keep what a job came to."""
        content = {"evaluation": found.evaluation.to_dict(), "mean_field": found.mean_field.to_dict()}
        with atomic_write(self._path(job)) as stream:
            json.dump({**content, "curve": found.curve, "steps": found.steps, "seconds": found.seconds}, stream)

    def __len__(self) -> int:
        """Return how many training runs are kept."""
        return len(list(self.folder.glob("*.json")))

    def remove(self) -> None:
        """Forget everything."""
        for path in self.folder.glob("*.json"):
            path.unlink()
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()


def _outcome(content: dict[str, Any]) -> Outcome:
    values: dict[str, Any] = {name: math.nan if value is None else value for name, value in content.items()}
    return Outcome(**{**values, "power_kw": np.array(content["power_kw"])})


def learner_rows(learners: Sequence[Learner], done: dict[Job, Trained]) -> list[Row]:
    """Gather the seeds of each learner that saw the true dynamics."""
    rows = []
    for learner in learners:
        runs = [run for job, run in done.items() if job.learner == learner and job.privacy is None]
        scores = [run.evaluation.score for run in runs]
        middle = runs[int(np.argsort(scores)[len(scores) // 2])].evaluation
        row = Row(learner.title, learner.env, middle, seed_summary(scores), max(run.steps for run in runs))
        row.seconds, row.level, row.scores = sum(run.seconds for run in runs), learner.level, scores
        row.curves = [run.curve for run in runs]
        rows.append(row)
    return rows


def private_rows(
    model: EnsembleModel, settings: ComparisonSettings, done: dict[Job, Trained], monitor: Monitor | None = None
) -> list[PrivateRow]:
    """Make every controller on releases of the matrix, and score it on the true dynamics."""
    monitor, seed = monitor or Silent(), settings.seed
    deploy = EnsembleEnv(model, action="policy")
    on_releases = any(spec is not None for _, spec in settings.sources)
    shown = {job.learner for job in done if job.privacy is not None or not on_releases}
    guess = _deploy_tilt(model, draw_release("public", model, 0)).score
    rows = []
    for k, spec in settings.sources:
        label = "" if math.isfinite(k) or spec is None else spec
        drawn: list[Any] = [None]
        if spec is not None:
            drawn = [draw_release(spec, model, seed + i, settings.participants) for i in range(settings.releases)]
        about: dict[str, Any] = {"spec": label, "epsilon": spent_by(drawn[0]), "without_data": guess}
        for name in (*PLANNED, *(() if label else EXPECTING)):
            monitor.stage(f"{name} on releases ({spec or 'none'})")
            making = {"k": math.inf} if name in EXPECTING and math.isinf(k) else {}
            found = [evaluate(make_agent(name, deploy, release=r, **making), deploy) for r in drawn]
            rows.append(_private_row(name, k, found, about))
        monitor.stage(f"standard as a tilt, on releases ({spec or 'none'})")
        found = [_deploy_tilt(model, r) for r in drawn]
        rows.append(_private_row("standard, as a tilt", k, found, about))
        for job, run in done.items():
            if job.privacy == spec and job.seed == seed and job.learner in shown:
                rows.append(_private_row(job.learner.title, k, [run.mean_field], about))
    return rows


def _private_row(name: str, k: float, found: Sequence[Outcome], about: dict[str, Any]) -> PrivateRow:
    power = np.mean([outcome.power_kw for outcome in found], axis=0)
    return PrivateRow(name, k, [e.score for e in found], [e.gap for e in found], power_kw=power, **about)


def plan_jobs(settings: ComparisonSettings) -> list[Job]:
    """List every training run: all seeds on the truth, and the first seed on a release of each mechanism."""
    jobs = [Job(learner, settings.seed + i) for learner in settings.learners for i in range(learner.seeds)]
    private: dict[str, Learner] = {}
    for learner in settings.learners:
        if (learner.algo, learner.action) in PRIVATE_LEARNERS:
            private.setdefault(learner.title, learner)
    specs = [spec for _, spec in settings.sources if spec is not None]
    return jobs + [Job(learner, settings.seed, spec) for learner in private.values() for spec in specs]


def spent_by(release: Release | None) -> float:
    """Return the ε at δ = 1e-6 of one release under the default adjacency; infinity for the truth itself."""
    return math.inf if release is None else PrivacyLedger().record(release).spent(DEFAULT_DELTA)


def _deploy_tilt(model: EnsembleModel, release: Any) -> Outcome:
    """Solve on the release, but deploy the attraction of each level instead of the transition matrix.

    The loads then follow their own true dynamics tilted by the plan, so the
    noise of the released rows is left behind and that of the value function remains. With nature
    or a context the outcome is computed, not played.
    """
    if not model.is_plain:
        return event_outcome(model, as_tilt(model.default if release is None else release, model))
    private = model if release is None else model.with_default(release.matrix)
    return evaluate(make_agent("standard", EnsembleEnv(private, action="tilt")), EnsembleEnv(model, action="tilt"))


def analytical_costs(model: EnsembleModel, ks: Sequence[float], seed: int) -> dict[str, list[float]]:
    """Cost of privacy by theory, dollars per building from the initial distribution, for each finite k.

    Nothing for a coupled model: its loads pay together, so no state has a cost of its own.
    """
    if model.coupling is not None:
        return {}
    finite, weights = [k for k in ks if math.isfinite(k)], model.start_weights
    costs = {
        name: [float((weights * cost_of_privacy(model, k, name)[0]).sum()) for k in finite]
        for name in ("taylor", "digamma", "average-exact")
    }
    samples = 500 if model.is_plain else 50  # solved one by one with nature or a context
    estimates = [release_cost(model, k, samples=samples, rng=seed) for k in finite]
    costs["one release"] = [float((weights * e.mean[0]).sum()) for e in estimates]
    return costs
