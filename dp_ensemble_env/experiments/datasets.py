#!/usr/bin/env python3
"""Write offline data sets for Minari, with reference scores that are exact.

Examples
--------
    dp-ensemble dataset                                     all kinds, mean field, tilt mode
    dp-ensemble dataset --env SingleLoad --episodes 2000 --kinds uncontrolled standard
    dp-ensemble dataset --action policy --k 50 --floor 0.05       on a private release
    dp-ensemble dataset --noise 0 --name plain --root datasets
    dp-ensemble dataset --meter meter.csv --unit kW --stamp start --k 50 --floor 0.01

The kinds, each a data set dp_ensemble/<name>/<kind>-v0:

    uncontrolled   nobody interferes, no noise either
    ad-hoc         today's practice, a fixed shed during the event
    medium         PPO, stopped after the first rollout with a score of at least 50 (in policy mode it learns tilts)
    standard       the optimal policy (not in price mode, where one price cannot express it)
    mixed          equal shares of the kinds above, in turn

Every start state occurs as often as it is likely. All but uncontrolled explore with --noise. Minari keeps data sets
in MINARI_DATASETS_PATH, or in ~/.minari/datasets; load one with minari.load_dataset("dp_ensemble/<name>/<kind>-v0").
Its recover_environment() gives back the very environment, whose rewards come out again when the stored actions are
played from the stored seeds. 100 times Minari's normalized score is the score of this benchmark: 0 is uncontrolled,
100 the optimum.

A private data set (--k) holds nothing of the matrix but one release, and states in its description what that is worth.
The release of the campus is seeded, that of a meter file comes from the operating system's entropy unless
--release-seed is given: make all kinds in one run, since a second run is a second release.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env import __version__
from dp_ensemble_env._validation import check_choice, check_count, check_in_range, check_positive
from dp_ensemble_env.agents import Agent, evaluate, make_agent
from dp_ensemble_env.agents.base import decision_time
from dp_ensemble_env.agents.evaluation import reference_returns
from dp_ensemble_env.cli.options import EVENT_DATE, EVENT_STEP, add_data_arguments, load_model
from dp_ensemble_env.envs.actions import action_scale
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.envs.portable import portable_spec
from dp_ensemble_env.envs.registration import ENVIRONMENTS
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy.mechanisms.dirichlet import DirichletMechanism
from dp_ensemble_env.scenarios.campus import campus_event

NAMES = [name.split("/")[1].removesuffix("-v0") for name in ENVIRONMENTS]
BEHAVIOURS = ("uncontrolled", "ad-hoc", "medium", "standard")
KINDS = (*BEHAVIOURS, "mixed")
MEDIUM_SCORE = 50.0
INFOS = ("time", "utility", "discomfort", "power_kw", "curtailment_kw", "optimal_return")
NOT_PRIVATE = (
    "Privacy: none. The environment ran the true dynamics, and its rewards reveal the transition matrix: the "
    "discomfort is an exact function of a row."
)


# ------------------------------------------------------------------ the environment
def make_env(args: argparse.Namespace) -> gymnasium.Env[Any, Any]:
    """Make the environment, whose spec JSON can hold: by name for the campus, by numbers for other models."""
    model = load_model(args)
    env_id = f"dp_ensemble/{args.env}-v0"
    if model.fingerprint == campus_event().fingerprint:
        seed = 0 if args.release_seed is None else args.release_seed
        private = {} if args.k is None else {"k": args.k, "floor": args.floor, "release_seed": seed}
        return gymnasium.make(env_id, action=args.action, **private)
    release = None
    if args.k is not None:
        release = DirichletMechanism(args.k, args.floor).release(model.default, args.release_seed)
    return gymnasium.make(portable_spec(env_id, model, release, action=args.action))


def default_name(args: argparse.Namespace) -> str:
    """Name the environment in the letters that Minari allows."""
    parts = [args.env.lower(), args.action]
    parts += [] if args.meter is None else [args.meter.stem]
    parts += [] if args.date == EVENT_DATE else [args.date]
    parts += [] if args.step_minutes == EVENT_STEP else [f"{args.step_minutes}min"]
    parts += [] if args.k is None else [f"k{args.k!r}".removesuffix(".0")]
    parts += [f"floor{args.floor!r}"] if args.floor else []
    parts += [f"release{args.release_seed}"] if args.release_seed else []
    return re.sub(r"[^-\w]", "_", "-".join(parts), flags=re.ASCII)


# ------------------------------------------------------------------ behaviours
class Tilting:
    """Plays the tilts of another agent as transition matrices, in policy mode."""

    def __init__(self, agent: Agent, model: EnsembleModel) -> None:
        self.agent, self.model = agent, model

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[NDArray[np.floating], Any]:
        """Return the tilted default matrices of the present decisions."""
        action, state = self.agent.predict(observation, state, episode_start, deterministic)
        time = decision_time(observation, self.model.horizon)
        tilt = np.asarray(action, float) * action_scale(self.model)[time][..., None]
        with np.errstate(divide="ignore"):
            logs = np.log(self.model.default_policy[time]) + tilt[..., None, :]
        return np.exp(logs - np.logaddexp.reduce(logs, axis=-1, keepdims=True)).astype(np.float32), state


def medium(core: EnsembleEnv, seed: int, bar: Any) -> Agent:
    """Train PPO until a rollout ends with the medium score."""
    tilts = core.action_mode == "policy"  # learning the probabilities themselves, hundreds of them, goes nowhere
    population = "mean-field" if core.population is None else core.population
    home = EnsembleEnv(core.model, population, "tilt") if tilts else core
    task = bar.add_task("medium: training", total=MEDIUM_SCORE)

    def progress(done: int, planned: int, score: float) -> None:
        bar.update(task, completed=max(score, 0.0), description=f"medium: training, {done:,} steps, score {score:.1f}")

    agent: Any = make_agent("ppo", home, seed=seed, target_score=MEDIUM_SCORE, interval=1, progress=progress)
    bar.remove_task(task)
    if agent.curve[-1][1] < MEDIUM_SCORE:
        raise ValueError(
            f"PPO ended at the score {agent.curve[-1][1]:.1f} without passing {MEDIUM_SCORE:g}; leave medium and mixed "
            "out of --kinds, or try another --seed."
        )
    return Tilting(agent, core.model) if tilts else agent


def explore(action: NDArray[Any], mode: str, noise: float, rng: np.random.Generator) -> NDArray[np.float32]:
    """Add noise to an action: Gaussian, clipped to the box; in policy mode a log-normal factor on each probability."""
    draw = noise * rng.standard_normal(action.shape)
    noisy = action * np.exp(draw) if mode == "policy" else action + draw
    return np.clip(noisy, 0.0 if mode == "policy" else -1.0, 1.0).astype(np.float32)


# ------------------------------------------------------------------ episodes
def play(env: gymnasium.Env[Any, Any], agent: Agent, noise: float, seed: int) -> dict[str, Any]:
    """Play one episode and return the columns of Minari's buffer."""
    core: Any = env.unwrapped
    rng = np.random.default_rng([seed, 1])
    observation, info = env.reset(seed=seed)
    observations, infos, actions, rewards, done = [observation], [info], [], [], False
    while not done:
        action = np.asarray(agent.predict(observation)[0], np.float32)
        if noise > 0:
            action = explore(action, core.action_mode, noise, rng)
        observation, reward, done, _, info = env.step(action)
        observations.append(observation)
        infos.append(info)
        actions.append(action)
        rewards.append(float(reward))
    return {
        "seed": seed,
        "observations": observations,
        "actions": actions,
        "rewards": rewards,
        "terminations": [False] * (len(rewards) - 1) + [True],
        "truncations": [False] * len(rewards),
        "infos": {name: [one[name] for one in infos] for name in INFOS},
    }


def draw_starts(env: gymnasium.Env[Any, Any], episodes: int, first: int) -> tuple[list[int], list[int]]:
    """Take seeds from `first` on, passing over those whose start state had its share; return seeds and start states.

    Every start state then occurs as often as it is likely, up to rounding, and the mean return of the episodes is free
    of the luck of the start, which is worth more than the steps between the kinds.
    """
    model = env.unwrapped.model  # type: ignore[attr-defined]
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
    behaviours = [""] * len(starts)
    for place, i in enumerate(sorted(range(len(starts)), key=lambda i: starts[i])):
        behaviours[i] = turn[place % len(turn)]
    return behaviours


def count_distinct(episodes: list[dict[str, Any]]) -> int:
    """Count the episodes that no earlier one equals."""
    return len({np.array(one["observations"]).tobytes() + np.array(one["actions"]).tobytes() for one in episodes})


def episodes_score(episodes: list[dict[str, Any]], model: EnsembleModel) -> float:
    """Score the mean return of episodes: 100 times Minari's normalized score."""
    low, high = reference_scores(model)
    return 100.0 * (float(np.mean([sum(one["rewards"]) for one in episodes])) - low) / (high - low)


def reference_scores(model: EnsembleModel) -> tuple[float, float]:
    """Return the exact expected returns of the uncontrolled ensemble and of the optimum."""
    idle, best = reference_returns(model)
    return float(model.initial @ idle), float(model.initial @ best)


# ------------------------------------------------------------------ storage
@contextmanager
def minari_folder(path: Path) -> Iterator[None]:
    """Let Minari work in a folder."""
    before = os.environ.get("MINARI_DATASETS_PATH")
    os.environ["MINARI_DATASETS_PATH"] = str(path)
    try:
        yield
    finally:
        if before is None:
            del os.environ["MINARI_DATASETS_PATH"]
        else:
            os.environ["MINARI_DATASETS_PATH"] = before


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

    model = env.unwrapped.model  # type: ignore[attr-defined]
    low, high = reference_scores(model)
    namespace, _, title = dataset_id.rpartition("/")
    with tempfile.TemporaryDirectory(dir=root, prefix=".making-") as hidden:
        with minari_folder(Path(hidden)), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".* is set to None")  # author, permanent link and such
            dataset = minari.create_dataset_from_buffers(
                dataset_id,
                [EpisodeBuffer(**one) for one in episodes],
                env=env.spec,
                algorithm_name=title.removesuffix("-v0"),
                ref_min_score=low,
                ref_max_score=high,
                num_episodes_average_score=0,  # they are exact
                description=description,
                requirements=[f"dp-ensemble-env>={__version__}"],
                data_format="hdf5",
            )
            dataset.storage.update_metadata(facts)
            dataset.storage.update_episode_metadata({"behaviour": name} for name in behaviours)
        made, target, former = Path(hidden, dataset_id), root / dataset_id, Path(hidden, "former")
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


# ------------------------------------------------------------------ the command
def run(args: argparse.Namespace) -> None:
    """Make the data sets one after the other; each is complete before the next begins."""
    kinds = check(args)
    try:
        import minari
        from minari.dataset.minari_dataset import parse_dataset_id
    except ImportError as error:
        raise ImportError(f'{error}; data sets are kept by Minari: pip install "minari[hdf5]" pillow.') from error
    from rich.console import Console
    from rich.progress import Progress

    root = Path(minari.storage.get_dataset_path()) if args.root is None else args.root
    if root.exists() and not root.is_dir():
        raise ValueError(f"{root} is not a folder; give another --root.")
    name = default_name(args) if args.name is None else args.name
    ids = {kind: f"dp_ensemble/{name}/{kind}-v0" for kind in kinds}
    for dataset_id in ids.values():
        parse_dataset_id(dataset_id)
    there = [dataset_id for dataset_id in ids.values() if (root / dataset_id).exists()]
    if there and not args.force:
        raise ValueError(f"{root} holds {', '.join(there)} already; replace with --force, or give another --name.")
    env = make_env(args)
    core: Any = env.unwrapped
    privacy = NOT_PRIVATE if core.release is None else core.ledger.statement()
    if core.release is None and args.meter is not None:
        print("make_dataset: without --k the data sets disclose the transition matrix of your meter.", file=sys.stderr)
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"cannot make the folder {root}: {error.strerror}; choose another --root.") from error
    turns = {kind: mixture(args.action) if kind == "mixed" else [kind] for kind in kinds}
    with Progress(console=Console(stderr=True), transient=True) as bar:
        agents = {
            kind: medium(core, args.seed, bar) if kind == "medium" else make_agent(kind, env)
            for kind in BEHAVIOURS
            if any(kind in turn for turn in turns.values())
        }
        scores = {kind: evaluate(agent, env).score for kind, agent in agents.items()}
        seeds, starts = draw_starts(env, args.episodes, args.seed)
        for kind, turn in turns.items():
            behaviours = take_turns(starts, turn)
            episodes = [
                play(env, agents[one], noise_of(one, args.noise), seed)
                for seed, one in bar.track(list(zip(seeds, behaviours, strict=True)), description=f"{kind}: playing")
            ]
            facts = {
                "behaviour_scores": {one: scores[one] for one in turn},
                "episodes_score": episodes_score(episodes, core.model),
                "distinct_episodes": count_distinct(episodes),
                "exploration_noise": noise_of(kind, args.noise),
                "first_seed": args.seed,
                "privacy": privacy,
            }
            writing = bar.add_task(f"{kind}: writing", total=None)
            store(root, ids[kind], episodes, behaviours, env, facts, describe(kind, args, facts))
            bar.remove_task(writing)
            print(
                f"{ids[kind]}: {args.episodes} episodes, {facts['distinct_episodes']} distinct, "
                f"score {round(facts['episodes_score'], 1) + 0.0:.1f}"
            )
    env.close()
    print(f"in {root}\n{privacy}")


def describe(kind: str, args: argparse.Namespace, facts: dict[str, Any]) -> str:
    """Say in a few sentences what the data set holds."""
    who = {
        "uncontrolled": "nobody interferes",
        "ad-hoc": "a fixed shed during the event",
        "medium": f"PPO, stopped after the first rollout with a score of at least {MEDIUM_SCORE:g}",
        "standard": "the optimal policy",
        "mixed": f"equal shares of {', '.join(facts['behaviour_scores'])}, in turn",
    }[kind]
    noise = facts["exploration_noise"]
    how = "every probability is multiplied by exp(noise)" if args.action == "policy" else "added and clipped to the box"
    spared = ", except in uncontrolled episodes" if kind == "mixed" else ""
    explored = f"Gaussian noise of standard deviation {noise:g}, {how}{spared}" if noise else "none"
    return (
        f"{args.env} in {args.action} mode, played by {kind}: {who}. Exploration: {explored}. Every start state occurs "
        f"as often as it is likely, up to rounding; {facts['distinct_episodes']} of {args.episodes} episodes are "
        "distinct. The reference scores are exact expectations over the start states, of the uncontrolled ensemble and "
        "of the optimum, so that 100 times the normalized score is the score of the benchmark. "
        f"{facts['privacy']}"
    )


def noise_of(kind: str, noise: float) -> float:
    """Return the noise of a kind: none where nobody interferes."""
    return 0.0 if kind == "uncontrolled" else noise


def mixture(action: str) -> list[str]:
    """Return the behaviours that take turns in mixed data."""
    return [kind for kind in BEHAVIOURS if playable(kind, action)]


def playable(kind: str, action: str) -> bool:
    """Tell whether a kind can be played in an action mode."""
    return not (kind == "standard" and action == "price")


def check(args: argparse.Namespace) -> list[str]:
    """Refuse what cannot work before anything is made; return the kinds."""
    check_count(args.episodes, "--episodes", 1)
    check_count(args.seed, "--seed", 0, 2**31 - 1)
    check_in_range(args.noise, "--noise", 0.0, 1.0)
    if args.k is not None:
        check_positive(args.k, "--k")
    elif args.floor or args.release_seed is not None:
        raise ValueError("--floor and --release-seed belong to a release; give --k too.")
    if args.kinds is None:
        return [kind for kind in KINDS if playable(kind, args.action)]
    for kind in args.kinds:
        check_choice(kind, "--kinds", KINDS)
        if not playable(kind, args.action):
            raise ValueError(f"one price cannot express the {kind} policy; use --action tilt or policy.")
    return list(dict.fromkeys(args.kinds))


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", choices=NAMES, default="MeanField", help="default MeanField")
    parser.add_argument("--action", choices=["price", "tilt", "policy"], default="tilt", help="mode (default tilt)")
    parser.add_argument("--kinds", nargs="+", metavar="KIND", help=f"of {', '.join(KINDS)} (default all)")
    parser.add_argument("--episodes", type=int, default=200, help="episodes of each kind (default 200)")
    parser.add_argument("--seed", type=int, default=0, help="of the first episode and of the training (default 0)")
    parser.add_argument("--noise", type=float, default=0.01, help="exploration noise (default 0.01; 0 for none)")
    parser.add_argument("--k", type=float, help="play on a Dirichlet release with this concentration")
    parser.add_argument("--floor", type=float, default=0.0, help="least probability before the draw (default 0)")
    parser.add_argument("--release-seed", type=int, help="seed of the release (default 0; none with a meter file)")
    parser.add_argument("--name", help="middle part of the names (default: environment, mode, meter, k, floor)")
    parser.add_argument("--root", type=Path, help="folder for the data sets (default: where Minari looks for them)")
    parser.add_argument("--force", action="store_true", help="replace data sets of the same name")
    add_data_arguments(parser)
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Run the command; bad input gives one sentence on stderr and the status 2."""
    args = parse(argv)
    try:
        run(args)
    except KeyboardInterrupt:
        print("make_dataset: interrupted; the data sets that were announced are complete.", file=sys.stderr)
        return 130
    except (ValueError, OSError, ImportError) as error:
        print(f"make_dataset: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
