"""Offline data sets for Minari, with reference scores that are exact.

Each kind is a data set dp_ensemble/<name>/<kind>-v0; ``dp-ensemble dataset --help`` lists the kinds. Every start state
occurs as often as it is likely. All but uncontrolled explore with noise. 100 times Minari's normalized score is the
score of this benchmark: 0 is uncontrolled, 100 the optimum.

A Minari data set says by *entry point*, the path of a Python object, how its environment is made, and
``dataset.recover_environment()`` imports and calls whatever that is. `recover_environment` does so for registered
environments only.
"""

from __future__ import annotations

import dataclasses
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

from dp_ensemble_env import __version__, scenarios
from dp_ensemble_env.agents import Agent, evaluate, make_agent
from dp_ensemble_env.envs import actions
from dp_ensemble_env.envs import spec as portable
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.experiments import croissant
from dp_ensemble_env.experiments.deployment import deploy
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.reporting.score import score, start_values
from dp_ensemble_env.reporting.tables import number_text
from dp_ensemble_env.scenarios.problem import READING, Problem, ProblemSettings, draw_release
from dp_ensemble_env.tools.console import Monitor
from dp_ensemble_env.tools.files import write_json
from dp_ensemble_env.tools.validation import check_choice, check_count, check_in_range, option

#: What makes an environment whose model is in the description as numbers.
MAKER = f"{portable.__name__}:make_env"
BEHAVIOURS = ("uncontrolled", "ad-hoc", "medium", "standard")
KINDS = (*BEHAVIOURS, "mixed")
MEDIUM_SCORE = 50.0
#: The scenario that a name leaves out.
CAMPUS = "campus-event"
#: What Minari reads its folder from.
FOLDER = "MINARI_DATASETS_PATH"
INFOS = ("time", "utility", "discomfort", "power_kw", "optimal_return")
NOT_PRIVATE = (
    "Privacy: none. The environment ran the true dynamics, and its rewards reveal the transition matrix: the "
    "discomfort is an exact function of a row."
)


@dataclass(frozen=True)
class DatasetSettings:
    """What is played, how often and how noisily."""

    population: str | int = "mean-field"
    action: str = "tilt"
    kinds: tuple[str, ...] = ()  #: by default all that the action mode can play
    episodes: int = 200  #: of each kind
    noise: float = 0.01  #: standard deviation of the exploration
    seed: int = 0  #: of the first episode, and of the training
    privacy: str | None = None  #: play on a release of this mechanism
    release_seed: int | None = None  #: 0 for a scenario and the operating system's entropy for a meter, unless given

    def __post_init__(self) -> None:
        check_count(self.episodes, "episodes", 1)
        check_count(self.seed, "seed", 0, 2**31 - 1)
        check_in_range(self.noise, "noise", 0.0, 1.0)
        if self.privacy is None and self.release_seed is not None:
            raise ValueError(f"a release seed belongs to a release; pass {option('privacy', 'dirichlet:k=50')} too.")
        for kind in self.kinds:
            check_choice(kind, "kinds", KINDS)
            if not playable(kind, self.action):
                raise ValueError(f"no {kind} can be played in {self.action} mode; pass {option('action', 'tilt')}.")
        wanted = self.kinds or tuple(kind for kind in KINDS if playable(kind, self.action))
        object.__setattr__(self, "kinds", tuple(dict.fromkeys(wanted)))


# ------------------------------------------------------------------ the environment
def make_env(problem: Problem, settings: DatasetSettings) -> gymnasium.Env[Any, Any]:
    """Make the environment, whose spec JSON can hold: by name for a scenario, by numbers for other models."""
    model = problem.model
    # Reference scores are in dollars.
    chosen: dict[str, Any] = {"population": settings.population, "action": settings.action, "reward": "dollars"}
    if is_named(problem.settings) and settings.privacy is None:
        identity = scenarios.environment_id(problem.settings.scenario)
        return gymnasium.make(identity, instance=problem.settings.instance, **chosen)
    release = None if settings.privacy is None else draw_release(settings.privacy, model, settings.release_seed)
    return gymnasium.make(portable.portable_spec(model, release, **chosen))


def check_spec(spec: EnvSpec | None) -> EnvSpec:
    """Return a description of an environment that names registered things only; refuse any other."""
    if spec is None:
        raise ValueError("the data set does not say what its environment is; make the environment yourself.")
    known = EnvSpec(portable.PORTABLE, MAKER) if spec.id == portable.PORTABLE else gymnasium.registry.get(spec.id)
    if known is None:
        raise ValueError(f"the data set names the environment {spec.id!r}, which is not registered; import it first.")
    vector, wrappers = spec.vector_entry_point, [one.entry_point for one in spec.additional_wrappers or ()]
    named: list[tuple[str, bool, Any]] = [("entry point", spec.entry_point == known.entry_point, spec.entry_point)]
    named += [("vector entry point", vector in (None, known.vector_entry_point), vector)]
    named += [("wrapper", str(name).startswith("gymnasium.wrappers."), name) for name in wrappers]
    for what, fine, name in named:
        if not fine:
            raise ValueError(
                f"the data set of {spec.id} names the {what} {name!r}, unlike the registered "
                "environment; it would be executed, so the data set is refused."
            )
    return spec


def recover_environment(dataset: Any, **arguments: Any) -> gymnasium.Env[Any, Any]:
    """Make the environment of a Minari data set, whose description is checked first, by ``gymnasium.make``."""
    return gymnasium.make(check_spec(dataset.env_spec), **arguments)


def is_named(problem: ProblemSettings) -> bool:
    """Tell whether a problem is a scenario of this package as it is, so that its name says it all anywhere."""
    return set(problem.identity()) <= {"scenario", "instance"} and problem.scenario in scenarios.BUILT_IN


def default_name(problem: ProblemSettings, settings: DatasetSettings) -> str:
    """Name the environment in the letters that Minari allows: whatever was set differently has another name."""
    parts = [f"{settings.population}".replace("-", ""), settings.action]
    plain = ProblemSettings(scenario=CAMPUS if problem.meter is None else problem.scenario)
    for field in fields(ProblemSettings):
        value = getattr(problem, field.name)
        if value == getattr(plain, field.name) or (field.name in READING and field.name not in ("column", "meter_id")):
            continue
        text = Path(value).stem if field.name == "meter" else f"{value}".removesuffix(".0")
        parts.append(
            text if field.name in ("meter", "date", "scenario", "column", "meter_id") else f"{field.name}{text}"
        )
    if settings.privacy is not None:
        parts.append(settings.privacy.removeprefix("dirichlet:").replace("=", "").replace(",", "-"))
    parts += [f"release{settings.release_seed}"] if settings.release_seed else []
    return re.sub(r"[^-\w]", "_", "-".join(parts), flags=re.ASCII)


# ------------------------------------------------------------------ behaviours
def learner_of_medium(model: EnsembleModel, action: str) -> str:
    """Name who plays medium: PPO does not get far with the tilts of models with nature, context or coupling."""
    return "apg" if actions.mode(action).tilt and not model.is_plain else "ppo"


def medium(core: EnsembleEnv, seed: int, monitor: Monitor) -> Agent:
    """Train a learner until a rollout ends with the medium score."""
    learner = learner_of_medium(core.model, core.action_mode)
    loads = learner == "apg" and core.population is not None  # but it learns in the mean field
    home = EnsembleEnv(core.model, action="tilt") if loads else core
    monitor.stage("medium: training")

    def progress(done: int, planned: int, score: float) -> None:
        monitor.advance(max(score, 0.0), f"{done:,} steps, score {score:.1f} of {MEDIUM_SCORE:g}")

    agent = make_agent(learner, home, seed=seed, target=MEDIUM_SCORE, interval=1, progress=progress)
    last: float = agent.curve[-1][1]  # type: ignore[attr-defined]
    if last < MEDIUM_SCORE:
        raise ValueError(
            f"{learner} ended at the score {last:.1f} without passing {MEDIUM_SCORE:g}; leave medium and mixed out of "
            "the kinds, or try another seed."
        )
    return agent


def explore(action: NDArray[Any], mode: str, noise: float, rng: np.random.Generator) -> NDArray[Any]:
    """Add noise to an action: Gaussian, clipped to the box; in policy mode a log-normal factor on each probability.

    A discrete action is exchanged for any other with the probability `noise`.
    """
    if levels := actions.mode(mode).levels:
        return np.where(rng.random() < noise, rng.integers(levels), action)
    draw = noise * rng.standard_normal(action.shape)
    noisy = action * np.exp(draw) if mode == "policy" else action + draw
    clipped: NDArray[np.float64] = np.clip(noisy, 0.0 if mode == "policy" else -1.0, 1.0)
    return clipped.astype(np.float32)


# ------------------------------------------------------------------ episodes
def play(env: gymnasium.Env[Any, Any], agent: Agent, noise: float, seed: int) -> dict[str, Any]:
    """Play one episode and return the columns of Minari's buffer."""
    core: Any = env.unwrapped
    rng = np.random.default_rng([seed, 1])
    observation, info = env.reset(seed=seed)
    observations, infos, actions, done, memory = [observation], [info], [], False, None
    rewards: list[Any] = []
    while not done:
        action, memory = agent.predict(observation, memory, np.array([not rewards]))
        action = np.asarray(action, core.action_space.dtype)
        if noise > 0:
            action = explore(action, core.action_mode, noise, rng)
        observation, reward, done, _, info = env.step(action)
        observations.append(observation)
        infos.append(info)
        actions.append(action)
        rewards.append(float(reward))
    told = {name: [one[name] for one in infos] for name in (*INFOS, "context", "cost") if name in infos[0]}
    ends = {"terminations": [False] * (len(rewards) - 1) + [True], "truncations": [False] * len(rewards)}
    return {"seed": seed, "observations": observations, "actions": actions, "rewards": rewards, **ends, "infos": told}


def draw_starts(env: gymnasium.Env[Any, Any], episodes: int, first: int) -> tuple[list[int], list[int]]:
    """Take seeds from `first` on, passing over those whose start state had its share; return seeds and start states.

    Every start state then occurs as often as it is likely, up to rounding, and the mean return of the episodes is free
    of the luck of the start, which is worth more than the steps between the kinds.
    """
    model = env.unwrapped.model  # type: ignore[attr-defined]
    if model.spread_start:  # there is but one start
        return list(range(first, first + episodes)), [0] * episodes
    left = np.floor(episodes * model.initial).astype(int)
    left[np.argsort(left - episodes * model.initial)[: episodes - left.sum()]] += 1  # largest remainders
    seeds, starts = [], []
    while left.sum() > 0:
        start = int(np.argmax(env.reset(seed=first)[0][: model.n_states]))
        if left[start] > 0:
            left[start] -= 1
            seeds.append(first)
            starts.append(start)
        first += 1
    return seeds, starts


def take_turns(starts: list[int], turn: list[str]) -> list[str]:
    """Give each episode a behaviour, in equal shares and in turn among those that start alike."""
    places = np.argsort(np.argsort(starts, kind="stable"))
    return [turn[place % len(turn)] for place in places]


def episodes_score(episodes: list[dict[str, Any]], model: EnsembleModel) -> float:
    """Score the mean return of episodes: 100 times Minari's normalized score."""
    return score(float(np.mean([sum(one["rewards"]) for one in episodes])), *start_values(model))


# ------------------------------------------------------------------ storage
@contextmanager
def minari_folder(path: Path) -> Iterator[None]:
    """Let Minari work in a folder."""
    before = os.environ.get(FOLDER)
    os.environ[FOLDER] = str(path)
    try:
        yield
    finally:
        del os.environ[FOLDER]
        os.environ.update({} if before is None else {FOLDER: before})


def store(
    root: Path,
    dataset_id: str,
    episodes: list[dict[str, Any]],
    behaviours: list[str],
    env: gymnasium.Env[Any, Any],
    facts: dict[str, Any],
    description: str,
) -> None:
    """Write a data set in a hidden folder, then move it into place; what was there goes only then."""
    import minari
    from minari.data_collector import EpisodeBuffer
    from minari.namespace import create_namespace, list_local_namespaces

    assert env.spec is not None  # `make_env` has Gymnasium make it
    low, high = start_values(env.unwrapped.model)  # type: ignore[attr-defined]
    namespace, _, title = dataset_id.rpartition("/")
    with tempfile.TemporaryDirectory(dir=root, prefix=".making-") as hidden:
        with minari_folder(Path(hidden)), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # author, permanent link and such are not given
            exact = {"ref_min_score": low, "ref_max_score": high, "num_episodes_average_score": 0}
            dataset = minari.create_dataset_from_buffers(
                dataset_id,
                [EpisodeBuffer(**one) for one in episodes],
                env=dataclasses.replace(env.spec, max_episode_steps=None),  # episodes end by themselves
                algorithm_name=title.removesuffix("-v0"),
                description=description,
                requirements=[f"dp-ensemble-env>={__version__}"],
                data_format="hdf5",
                **exact,
            )
            dataset.storage.update_metadata(facts)
            dataset.storage.update_episode_metadata({"behaviour": name} for name in behaviours)
        made, target, former = Path(hidden, dataset_id), root / dataset_id, Path(hidden, "former")
        numbers = len(episodes), (low, high), facts["episodes_score"]
        write_json(made / croissant.NAME, croissant.describe_folder(made, dataset_id, description, *numbers))
        for file in (one for one in made.rglob("*") if one.is_file()):
            with file.open("rb") as stream:
                os.fsync(stream.fileno())
        with minari_folder(root):
            if namespace not in list_local_namespaces():
                create_namespace(namespace)
        if target.exists():
            target.rename(former)
        try:
            made.rename(target)
        except OSError:
            if former.exists():
                former.rename(target)
            raise


# ------------------------------------------------------------------ making
@dataclass(frozen=True)
class Target:
    """Where data sets go: Minari's folder, and the middle part of their names."""

    root: Path
    name: str
    force: bool = False

    def ids(self, kinds: tuple[str, ...]) -> dict[str, str]:
        """Return the name of each kind; what is there already is refused, unless it is to be replaced."""
        from minari.dataset.minari_dataset import parse_dataset_id

        if self.root.exists() and not self.root.is_dir():
            raise ValueError(f"{self.root} is not a folder; give another.")
        ids = {kind: f"dp_ensemble/{self.name}/{kind}-v0" for kind in kinds}
        for dataset_id in ids.values():
            parse_dataset_id(dataset_id)
        there = [dataset_id for dataset_id in ids.values() if (self.root / dataset_id).exists()]
        if there and not self.force:
            remedy = f"replace it with {option('force', True)}, or give another name"
            raise ValueError(f"{self.root} holds {', '.join(there)} already; {remedy}.")
        return ids


def minari_root() -> Path:
    """Return the folder where Minari keeps data sets, or say what must be installed."""
    try:
        import minari
    except ImportError as error:
        raise ImportError(
            f"{error}; data sets are kept by Minari: pip install 'dp-ensemble-env[minari]' (minari[hdf5], pillow).",
            name="minari",
        ) from error
    return Path(minari.storage.get_dataset_path())


def make_datasets(
    problem: Problem,
    settings: DatasetSettings,
    target: Target,
    monitor: Monitor | None = None,
    say: Callable[[str], None] | None = None,
) -> str:
    """Make the data sets one after the other, each complete before the next begins; return their privacy.

    `say` is told of each when it is complete.
    """
    monitor, ids = monitor or Monitor(), target.ids(settings.kinds)
    env = make_env(problem, settings)
    core: Any = env.unwrapped
    privacy = NOT_PRIVATE if core.release is None else str(core.ledger.statement())
    try:
        target.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"cannot make the folder {target.root}: {error.strerror}; choose another.") from error
    mixture = [kind for kind in BEHAVIOURS if playable(kind, settings.action)]
    turns = {kind: mixture if kind == "mixed" else [kind] for kind in settings.kinds}
    agents = {
        kind: medium(core, settings.seed, monitor) if kind == "medium" else make_agent(kind, env)
        for kind in BEHAVIOURS
        if any(kind in turn for turn in turns.values())
    }
    scores = {kind: evaluate(agent, env).score for kind, agent in agents.items()}
    seeds, starts = draw_starts(env, settings.episodes, settings.seed)
    for kind, turn in turns.items():
        behaviours = take_turns(starts, turn)
        monitor.stage(f"{kind}: playing", len(seeds))
        episodes = []
        for seed, one in zip(seeds, behaviours, strict=True):
            episodes.append(play(env, agents[one], noise_of(one, settings.noise), seed))
            monitor.advance(len(episodes))
        facts: dict[str, Any] = {
            "behaviour_scores": {one: scores[one] for one in turn},
            "episodes_score": episodes_score(episodes, core.model),
            "distinct_episodes": len(
                {np.array(e["observations"]).tobytes() + np.array(e["actions"]).tobytes() for e in episodes}
            ),
            "exploration_noise": noise_of(kind, settings.noise),
            "first_seed": settings.seed,
            "starts": starting(core.model),
            "privacy": privacy,
        }
        if "medium" in turn:
            facts["learner"] = {"ppo": "PPO", "apg": "apg"}[learner_of_medium(core.model, settings.action)]
        monitor.stage(f"{kind}: writing")
        store(target.root, ids[kind], episodes, behaviours, env, facts, describe(kind, settings, facts))
        if say is not None:
            reached = number_text(facts["episodes_score"], 1)
            distinct = facts["distinct_episodes"]
            where = "score" if core.release is None else "score on the release"
            say(f"{ids[kind]}: {settings.episodes} episodes, {distinct} distinct, {where} {reached}")
    best = "standard" if playable("standard", settings.action) else "best-price"
    if say is not None and core.release is not None:  # for the owner of the data: it stands in no data set
        say(f"The best plan on the release ({best}): {deploy(make_agent(best, env), core, problem.model)}")
    env.close()
    return privacy


def starting(model: EnsembleModel) -> str:
    """Say how the starts of the episodes were chosen."""
    alike = "Every start state occurs as often as it is likely, up to rounding"
    starts = "The loads of every episode start spread over the states" if model.spread_start else alike
    return starts if model.context is None else f"{starts}, and the contexts come as they are drawn"


def describe(kind: str, settings: DatasetSettings, facts: Mapping[str, Any]) -> str:
    """Say in a few sentences what the data set holds."""
    who = {
        "uncontrolled": "nobody interferes",
        "ad-hoc": "a fixed shed during the event",
        "medium": f"{facts.get('learner')}, stopped after the first rollout with a score of at least {MEDIUM_SCORE:g}",
        "standard": "the optimal policy",
        "mixed": f"equal shares of {', '.join(facts['behaviour_scores'])}, in turn",
    }[kind]
    noise = facts["exploration_noise"]
    effect = "every probability is multiplied by exp(noise)" if settings.action == "policy" else (
        "added and clipped to the box")  # fmt: skip
    how = f"Gaussian noise of standard deviation {noise:g}, {effect}"
    if actions.mode(settings.action).levels:
        how = f"any other price with the probability {noise:g}"
    explored = f"{how}{', except in uncontrolled episodes' * (kind == 'mixed')}" if noise else "none"
    where = "" if settings.privacy is None else " on the release itself, not on the truth"
    return (
        f"Population {settings.population}, {settings.action} mode, played by {kind}: {who}. Exploration: {explored}. "
        f"{facts['starts']}; {facts['distinct_episodes']} of {settings.episodes} episodes are distinct. The reference "
        "scores are exact expectations over starts and contexts, of the uncontrolled loads and of the optimum, so that "
        f"100 times the normalized score is the score of the benchmark{where}. {facts['privacy']}"
    )


def noise_of(kind: str, noise: float) -> float:
    """Return the noise of a kind: none where nobody interferes."""
    return 0.0 if kind == "uncontrolled" else noise


def playable(kind: str, action: str) -> bool:
    """Tell whether a kind can be played in an action mode: one price expresses no optimum, nobody learns policies."""
    return {"standard": action in ("tilt", "policy"), "medium": action != "policy"}.get(kind, True)
