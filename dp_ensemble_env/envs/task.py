"""The problem that an environment's settings describe.

`Task` is what the single and the vector environments share: the model in force
(true or released), the ledger, the spaces and the packed tables of `dynamics`.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import logger, spaces
from gymnasium.envs.registration import EnvSpec
from numpy.typing import ArrayLike, DTypeLike, NDArray

from dp_ensemble_env.control.coupled import solve_coupled
from dp_ensemble_env.envs import _general as gen
from dp_ensemble_env.envs import _parts as dyn
from dp_ensemble_env.envs import actions
from dp_ensemble_env.envs.encode import encode_policy
from dp_ensemble_env.envs.general import GeneralKernel, is_general, pack_general
from dp_ensemble_env.envs.settings import EnvSettings
from dp_ensemble_env.envs.tables import Kernel, pack, reward_unit
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy.mechanisms.base import Event, Mechanism, Release, fingerprint
from dp_ensemble_env.tools.validation import as_float_array, check_count

if TYPE_CHECKING:
    from dp_ensemble_env.privacy.ledger import PrivacyLedger

FloatArray = NDArray[np.float64]
#: Actions of these types are taken as they are.
FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
#: Label of a release that an environment was given.
ELSEWHERE = "release made elsewhere"
#: δ of the ε that renderings print.
SHOWN_DELTA = 1e-6
#: How far outside of the box an action may lie by rounding.
ROUNDING = 1e-6
#: Reset options that were ignored, and of which the user was told.
_IGNORED: set[str] = set()


class Task:
    """The model in force, its ledger, spaces and tables.

    Parameters
    ----------
    settings : EnvSettings
    autoreset : bool
        Whether a step after the end of an episode begins the next one.
    """

    def __init__(self, settings: EnvSettings, autoreset: bool) -> None:
        self.settings = settings
        self.mode, self.redraw, self.infos, self.h = settings.action, settings.redraw, settings.infos, settings.h
        self.population, self.loads = settings.kind, settings.loads
        privacy = settings.privacy
        self._ledger = _check_ledger(settings.ledger, settings.budget, privacy is not None)
        self._charged: list[tuple[str, Event, str]] = []
        self._statement: tuple[int, str] = (-1, "")
        self.release: Release | None = None
        self._mechanism: Mechanism | None = None
        self._true: EnsembleModel | None = None
        if isinstance(privacy, Release):
            self.model, self.release = settings.model.public(_check_release(privacy, settings.model)), privacy
            self._account_for(privacy, given=settings.ledger is not None)
            self.kernel = kernel_of(self.model)
        elif privacy is not None:
            self._mechanism, self._true = privacy, settings.model
            self.kernel = self.draw(0)
        else:
            self.model = settings.model
            self.kernel = kernel_of(self.model)
        if self.release is not None and self.redraw == "never":
            # The environment keeps nothing that is private: from here on the release is all it knows.
            self._true, self.h = None, None
            self.settings = self.public_settings()
        chosen = actions.mode(self.mode)
        self.general = is_general(self.model)
        #: Rows of ``values``, and those of ``counters`` that a seed fills.
        self.values = gen.VALUES if self.general else dyn.VALUES
        self.streams = slice(gen.EPISODES, gen.EPISODES + 2) if self.general else dyn.STREAMS
        packing: Any = pack_general if self.general else pack
        self.ints, self.common = packing(self.model, self.kernel, chosen, self.loads, autoreset)
        self.scale = actions.action_scale(self.model)
        self.unit = reward_unit(self.model) if settings.rewards == "unit" else None
        self.choices = chosen.choices if chosen.levels else None
        features = 0 if self.model.context is None else self.model.context.features.shape[1]
        self.width = self.model.n_states + 3 + features
        self.observation_space = spaces.Box(0.0, 1.0, (self.width,), np.float32)
        self.action_space = chosen.space(self.model)
        # A discrete action is never taken as it is: no array has the shape (-1,).
        self.action_shape = (-1,) if chosen.levels else chosen.shape(self.model)

    # ------------------------------------------------------------ arrays of the compiled steps
    @property
    def dynamics(self) -> str:
        """Which of the compiled steps moves the population."""
        return "general" if self.general else self.population

    def arrays(self, size: int) -> tuple[NDArray[np.int64], FloatArray]:
        """Return ``counters`` and ``occupancy`` of `size` environments that have yet to be reset."""
        n = self.model.n_states
        rows = gen.PATH + self.model.horizon + 1 if self.general else dyn.COUNTERS
        columns = 2 * n if self.general else 0 if self.population == "single" else n
        counters = np.zeros((rows, size), np.int64)
        counters[dyn.TIME] = -1
        return counters, np.zeros((size, columns))

    def check_pickled(self, counters: NDArray[np.int64]) -> None:
        """Refuse arrays that another version of the compiled steps has laid out."""
        if len(counters) != len(self.arrays(1)[0]) or (not self.general and self.ints[dyn.WIDTH] % 4):
            raise ValueError("this environment was pickled by another version of dp_ensemble_env; make it anew.")

    # ------------------------------------------------------------ privacy
    def draw(self, index: int) -> Kernel | GeneralKernel:
        """Charge the release of episode `index`, unless the ledger has it already, draw it and adopt it.

        The releases are a sequence fixed by the release seed: every environment
        made with that seed finds the same matrix at the same index, so drawing
        it again reveals nothing new and is not charged again, unless something
        else is claimed about it (another h).
        """
        if self._mechanism is None or self._true is None:
            raise ValueError(
                "this copy of the environment cannot draw again, since the private data stayed where it was made; "
                "make one there, or go on with redraw='never'."
            )
        start = self.settings.release_seed
        seed = start if index == 0 else _seed_of(start, index)
        data, known = self._mechanism.data_of(self._true), self._mechanism.terms_of(self._true)
        terms = known if self.h is None else {**known, "h": self.h}
        event = self.ledger.priced(self._mechanism.event(data, seeding="seed", **terms))
        label = self.ledger.name_of(f"{seed} {event.digest} {fingerprint(data)}")
        # The same numbers with the same claim are the release that the ledger knows; nobody has seen this draw yet.
        release = Release(self._mechanism.release(data, seed, **known).log_matrix, event.public)
        if not (self.ledger.has(label, event) and self.ledger.knows(release)):
            release = self.ledger.release(self._mechanism, data, seed, label=label, **terms)
        model = self._true.public(release)
        kernel = kernel_of(model)
        self.model, self.release = model, release
        self._charged.append((label, event.public, release.digest))
        return kernel

    def released_models(self, count: int) -> Iterator[EnsembleModel]:
        """Draw the releases of the first `count` episodes; their models come one by one, that in force stays."""
        for index in range(count):
            before = self.model, self.release
            try:
                self.draw(index)
                drawn = self.model
            finally:
                self.model, self.release = before
            yield drawn

    def _account_for(self, release: Release, given: bool) -> None:
        """Charge a release that was made elsewhere, unless it was; a ledger that was given must have it."""
        known = self.ledger.knows(release)
        if given and not known:
            raise ValueError(
                "the ledger has no entry for this release, so nobody has paid for it; charge it with "
                "ledger.record(release), or draw it with ledger.release(mechanism, data)."
            )
        event = self.ledger.priced(release.event.under(self.h))
        if not known or (self.h is not None and event not in self.ledger.charges):
            self.ledger.record(release, self.h, ELSEWHERE)
        self._charged.append((ELSEWHERE, event.public, release.digest))

    @property
    def ledger(self) -> PrivacyLedger:
        """What the environment has spent, and, if it was given no ledger, the others of this process with it."""
        if self._ledger is None:
            from dp_ensemble_env.privacy.ledger import PrivacyLedger

            if self.settings.privacy is not None:
                return PrivacyLedger.of_process()
            # Nothing leaves by running the true dynamics, so the others need not know; but nothing is private either.
            self._ledger = PrivacyLedger().record_deterministic("the environment runs the true dynamics")
        return self._ledger

    def public_settings(self) -> EnvSettings:
        """Return the settings of an environment on the present release, made of public fields alone; no seed."""
        if self.release is None:
            return self.settings
        public = {"model": self.model, "privacy": self.release, "redraw": "never"}
        return self.settings.override(**public, release_seed=0, ledger=None, budget=None, h=None)

    def public_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of an environment as they may leave in a spec: no private model, no h, no ledger."""
        if self.release is None:
            return arguments
        kept = {name: value for name, value in arguments.items() if name not in ("h", "ledger")}
        if not isinstance(kept.get("model"), EnsembleModel):
            return kept
        drawn = ("k", "floor", "release", "release_seed", "redraw", "budget")
        kept = {name: value for name, value in kept.items() if name not in drawn}
        return {**kept, "model": self.model, "privacy": self.release}

    def __getstate__(self) -> dict[str, Any]:
        """Leave everything private behind: a copy that is handed out cannot draw again."""
        state = dict(self.__dict__)
        if self.release is not None:
            ledger = None if self._ledger is None else self._ledger.handed_out()
            state.update(_true=None, h=None, settings=self.public_settings(), _ledger=ledger)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(writeable(state))
        if self.release is not None and self._ledger is None:
            for label, event, digest in self._charged:
                self.ledger.adopt(label, event, digest)

    def __deepcopy__(self, memo: dict[int, Any]) -> Task:
        """Copy within the process: the twin may draw again, and shares the ledger of the process."""
        twin = Task.__new__(Task)
        memo[id(self)] = twin
        twin.__dict__.update({name: copy.deepcopy(value, memo) for name, value in self.__dict__.items()})
        return twin

    def privacy_line(self) -> str:
        """Say in one line what is private and what was spent."""
        if self.release is None:
            return "Privacy: none, these are the true dynamics (k=None)"
        spent = self.ledger.releases
        if spent != self._statement[0]:
            self._statement = spent, self._spent_text(spent)
        return self._statement[1]

    def _spent_text(self, spent: int) -> str:
        assert self.release is not None
        epsilon = self.ledger.spent(SHOWN_DELTA)
        amount = f"ε = {epsilon:.3g} at δ = {SHOWN_DELTA:g}" if np.isfinite(epsilon) else "no ε for all inputs"
        if not np.isfinite(epsilon) and getattr(self.release.event, "bare", False):
            amount += " (floor = 0)"
        seeded = "; seeded, hence repeatable" if self.release.reproducible else ""
        kind, settings = self.release.event.type.capitalize(), self.release.event.headline.replace("=", " = ")
        return f"Privacy: {spent} {kind} release{'s' * (spent != 1)}, {settings}: {amount}{seeded}"

    # ------------------------------------------------------------ the optimum
    def optimal_return(self, state: int | ArrayLike, context: int | None = None) -> float:
        """Return the largest expected return from a state, or from a distribution over the states.

        Without a `context`, the mean over those in which an episode may begin.
        """
        model, n = self.model, self.model.n_states
        alone = np.ndim(state) == 0
        start = np.eye(n)[check_state(state, n)] if alone else check_occupancy(state, n)
        if model.coupling is not None:  # not linear in the start, so it is solved for it
            return solve_coupled(model.override(initial=start)).primal
        values = self.kernel.optimal_return
        if model.context is not None:
            values = values[check_context(context, model)] if context is not None else model.context.start @ values
        return float(values.reshape(-1)[check_state(state, n)] if alone else start @ values.reshape(-1))

    @property
    def optimal_policy(self) -> FloatArray:
        """The optimal policy of the model in force, shape (T, [c,] n, m)."""
        return self.kernel.solution.policy

    def encode_policy(
        self, policy_t: ArrayLike, time: int, dtype: DTypeLike = np.float32, context: int | None = None
    ) -> NDArray[Any]:
        """Return the action of this mode that realises the policy rows `policy_t` at `time`, in a context."""
        t = check_count(time, "time", 0)
        if t >= self.model.horizon:
            raise ValueError(f"time={t} is past the last decision, {self.model.horizon - 1}; reset the environment.")
        where = 0 if context is None else check_context(context, self.model)
        if context is None and self.model.default.ndim == 4:
            raise ValueError(
                "the loads behave differently in each context; say which one: encode_policy(..., context=0)."
            )
        action = encode_policy(self.model, self.mode, policy_t, t, where)
        return action if self.choices is not None else action.astype(dtype)

    # ------------------------------------------------------------ messages
    def refusal(self, fault: int, action: NDArray[Any], shape: tuple[int, ...]) -> Exception:
        """Turn the return value of a step into the error to raise."""
        from gymnasium.error import ResetNeeded

        if fault < 0:
            which = "" if len(shape) == len(self.action_shape) else f" {-1 - fault}"
            return ResetNeeded(
                f"the episode of environment{which} is over (or never began); call reset() before step()."
            )
        index = np.unravel_index(fault - 1, shape)
        where = ", ".join(str(int(i)) for i in index)
        low = actions.mode(self.mode).low
        return ValueError(
            f"action[{where}] is {action.reshape(shape)[index]!s}, but actions lie in [{low:g}, 1]; clip them "
            "(gymnasium.wrappers.ClipAction), and look for NaN in the policy that made them."
        )

    def mended(self, fault: int, action: NDArray[Any], shape: tuple[int, ...]) -> NDArray[np.floating]:
        """Return the refused action with what lies outside by rounding put on the edge, or raise the error."""
        low = actions.mode(self.mode).low
        inside = np.clip(action, low, 1.0)
        near = np.abs(action - inside) <= ROUNDING  # False for NaN
        if fault < 0 or not near.reshape(-1)[fault - 1]:
            raise self.refusal(fault, action, shape)
        return np.where(near, inside, action)

    def as_action(self, action: Any, shape: tuple[int, ...]) -> NDArray[np.floating]:
        """Return `action` as a contiguous float array of `shape`, or say what is wrong with it."""
        if self.choices is not None:
            return self._chosen(action, shape[:-1])
        try:
            array = np.asarray(action)
            if array.dtype.kind not in "fiu":
                raise TypeError
        except (TypeError, ValueError) as error:
            raise ValueError(f"an action must be an array of {shape} real numbers, got {action!r}.") from error
        if array.shape != shape:
            raise ValueError(f"the action has shape {array.shape}, but the {self.mode!r} mode takes {shape}.")
        return np.array(
            array, dtype=FLOAT32 if array.dtype.itemsize == 4 and array.dtype.kind == "f" else FLOAT64, order="C"
        )

    def _chosen(self, action: Any, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Return the numbers that discrete actions of `shape` stand for."""
        assert self.choices is not None
        array, last = np.asarray(action), len(self.choices) - 1
        if array.dtype.kind not in "iu" or array.shape != shape:
            wanted = "an integer" if shape == () else f"integers of shape {shape}"
            raise ValueError(f"a discrete action is {wanted} in 0 … {last}, got {action!r}.")
        wrong = (array < 0) | (array > last)
        if wrong.any():
            raise ValueError(f"a discrete action lies in 0 … {last}, got {int(array[wrong].flat[0])}.")
        numbers: NDArray[np.float32] = self.choices[array][..., None]
        return numbers


class TaskView:
    """What single and vector environments tell of their task."""

    _task: Task
    _spec: EnvSpec | None = None

    @property
    def spec(self) -> EnvSpec | None:
        """How Gymnasium made the environment; with a release, of public arguments alone.

        Its ``max_episode_steps`` is the horizon. The registered ids have none, so that no TimeLimit is put around the
        environment: an episode ends by itself, and is terminated, not truncated.
        """
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        if spec is not None:
            spec = copy.copy(spec)
            spec.kwargs = self._task.public_arguments(spec.kwargs)
            spec.max_episode_steps = self._task.model.horizon
            spec.nondeterministic = self._task.redraw == "episode"  # equal seeds then meet different releases
        self._spec = spec

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(text for _, text in self._facts)})"

    def _repr_html_(self) -> str:
        from dp_ensemble_env.tools.html import card

        return card(type(self).__name__, self._facts)

    @property
    def _facts(self) -> list[tuple[str, str]]:
        """Sizes and settings, all of them public."""
        task, copies = self._task, getattr(self, "num_envs", None)
        number = self.population
        loads = "mean field" if number is None else f"{number:,} load{'s' * (number > 1)}"
        return [
            *([] if copies is None else [("copies", f"{copies} at a time")]),
            ("states", f"{task.model.n_states:,} states"),
            ("decisions", f"{task.model.horizon} steps"),
            ("population", loads),
            ("actions", f"{task.mode} mode"),
            ("behaviour", "true behaviour" if task.release is None else f"{task.release.event.type} release"),
        ]

    @property
    def model(self) -> EnsembleModel:
        """The model in force: its `default` is the (latest) release if there is one."""
        return self._task.model

    @property
    def redraw(self) -> str:
        """When the private matrix is drawn again: ``"never"`` or ``"episode"``."""
        return self._task.redraw

    def released_models(self, count: int) -> Iterator[EnsembleModel]:
        """Yield the models of the first `count` episodes with ``redraw="episode"``, the environment being left alone.

        Releases that were not drawn yet are charged to the ledger.
        """
        return self._task.released_models(count)

    @property
    def release(self) -> Release | None:
        """The (latest) private matrix, None when the dynamics are the true ones."""
        return self._task.release

    @property
    def ledger(self) -> PrivacyLedger:
        """The ledger that this environment's releases are charged to."""
        return self._task.ledger

    @property
    def settings(self) -> EnvSettings:
        """What the environment was made of; with a release, the release and the public rest of the model."""
        return self._task.public_settings()

    @property
    def action_mode(self) -> str:
        """Name of the action mode, such as ``"tilt"``."""
        return self._task.mode

    @property
    def population(self) -> int | None:
        """Number of loads of an environment, None for infinitely many."""
        return self._task.loads or None

    @property
    def optimal_policy(self) -> FloatArray:
        """The optimal policy of the model in force, shape (T, n, m), or (T, c, n, m) with a context."""
        return self._task.optimal_policy

    @property
    def reward_unit(self) -> float:
        """Dollars per building that a reward of one stands for."""
        return 1.0 if self._task.unit is None else self._task.unit

    def optimal_return(self, state: int | ArrayLike, context: int | None = None) -> float:
        """Return the largest expected return in $/building from a start state, or from a distribution over them.

        With a context it is that of `context`, by default the mean over those in which an episode may begin.
        """
        return self._task.optimal_return(state, context)


def seed_words(seed: int) -> NDArray[np.int64]:
    """Return the two words of the random stream that `seed` stands for."""
    return _nonzero(np.random.SeedSequence(seed).generate_state(2, np.uint64).astype(np.uint64))


def random_words(rng: np.random.Generator, count: int) -> NDArray[np.int64]:
    """Draw the words of `count` streams, shape (2, count)."""
    return _nonzero(rng.integers(0, 2**64, size=(2, count), dtype=np.uint64))


def _nonzero(words: NDArray[np.uint64]) -> NDArray[np.int64]:
    words[0] |= ((words[0] | words[1]) == 0).astype(np.uint64)  # a stream cannot leave the all-zero state
    return words.astype(np.int64)


def writeable(state: dict[str, Any]) -> dict[str, Any]:
    """Return the state of an unpickled object with arrays of its own: those in Ray's object store cannot be written."""
    return {
        name: value.copy() if isinstance(value, np.ndarray) and not value.flags.writeable else value
        for name, value in state.items()
    }


# ------------------------------------------------------------------ arguments
def check_state(state: Any, n: int) -> int:
    """Return a state as an int, refusing what is none."""
    if isinstance(state, (bool, np.bool_)) or not isinstance(state, (int, np.integer)):
        raise ValueError(f"state must be an integer in 0 … {n - 1}, got {state!r}.")
    if not 0 <= state < n:
        raise ValueError(f"state={int(state)} does not exist; the states are 0 … {n - 1}.")
    return int(state)


def check_context(context: Any, model: EnsembleModel) -> int:
    """Return a context as an int, refusing what is none."""
    c = model.n_contexts
    if isinstance(context, (bool, np.bool_)) or not isinstance(context, (int, np.integer)) or not 0 <= context < c:
        names = "" if model.context is None else f" ({', '.join(model.context.names)})"
        raise ValueError(f"context must be an integer in 0 … {c - 1}{names}, got {context!r}.")
    return int(context)


def check_occupancy(occupancy: Any, n: int) -> FloatArray:
    """Return a distribution over the states, refusing what is none."""
    array = as_float_array(occupancy, "occupancy", 1)
    if array.shape != (n,) or (array < 0).any() or abs(array.sum() - 1.0) > 1e-6:
        raise ValueError(
            f"occupancy must be {n} shares that are not negative and sum to one, got shape {array.shape} and sum "
            f"{array.sum():g}; divide it by its sum."
        )
    result: NDArray[np.float64] = array / array.sum()
    return result


def check_options(options: dict[str, Any] | None, known: tuple[str, ...]) -> dict[str, Any]:
    """Return the options of a reset that are `known`, refusing a start given twice; of others a warning tells, once."""
    if options is None:
        return {}
    if not isinstance(options, dict):
        raise ValueError(f"options must be a dict, got {type(options).__name__}.")
    for name in options:
        if name not in known and name not in _IGNORED:
            _IGNORED.add(name)
            logger.warn(f"reset ignores the option {name!r}; it knows {', '.join(known)}.")
    if "state" in options and "occupancy" in options:
        raise ValueError("options give both state and occupancy; choose the start by one of them.")
    return {name: value for name, value in options.items() if name in known}


def kernel_of(model: EnsembleModel) -> Kernel | GeneralKernel:
    """Solve a model for the compiled steps."""
    return GeneralKernel.of(model) if is_general(model) else Kernel.of(model)


def _check_release(release: Release, model: EnsembleModel) -> Release:
    n = model.n_states
    if release.log_matrix.shape not in (model.default.shape, (n, n), (model.horizon, n, n)):
        raise ValueError(
            f"the release has shape {release.log_matrix.shape}, but the model has {n} states and {model.horizon} steps."
        )
    return release


def _check_ledger(ledger: Any, budget: Any, private: bool) -> PrivacyLedger | None:
    if not private and (ledger is not None or budget is not None):
        raise ValueError("ledger and budget account for private releases; give k (or release) as well.")
    if ledger is None and budget is None:
        return None
    from dp_ensemble_env.privacy.ledger import PrivacyLedger

    if ledger is None or isinstance(ledger, (str, os.PathLike)):
        return PrivacyLedger(ledger, budget)
    if not isinstance(ledger, PrivacyLedger):
        raise ValueError(f"ledger must be a PrivacyLedger or the path of one, got {type(ledger).__name__}.")
    if budget is not None:
        raise ValueError("the ledger has a budget of its own; set it there: PrivacyLedger(budget=(epsilon, delta)).")
    return ledger


def _seed_of(release_seed: int, index: int) -> int:
    """Return the seed of a later release of the sequence; 128 bits, so that no two meet by accident."""
    return int.from_bytes(np.random.SeedSequence([release_seed, index]).generate_state(4).tobytes(), "little")
