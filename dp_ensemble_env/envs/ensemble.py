"""The environment: one ensemble of loads through one demand-response event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

import gymnasium
import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from dp_ensemble_env.envs import _general as gen
from dp_ensemble_env.envs import _parts as dyn
from dp_ensemble_env.envs.dynamics import STEPS
from dp_ensemble_env.envs.general import uncontrolled_ahead
from dp_ensemble_env.envs.settings import EnvSettings, Options
from dp_ensemble_env.envs.tables import Kernel
from dp_ensemble_env.envs.task import (
    FLOAT32,
    FLOAT64,
    Task,
    TaskView,
    check_context,
    check_occupancy,
    check_options,
    check_state,
    random_words,
    seed_words,
    writeable,
)
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.tools.validation import check_choice

if TYPE_CHECKING:
    from dp_ensemble_env.envs.rendering import Renderer
    from dp_ensemble_env.envs.scene import Scene

FloatArray = NDArray[np.float64]
RENDER_MODES = ["human", "rgb_array", "ansi"]
RENDER_FPS = 4


class EnsembleEnv(TaskView, gymnasium.Env[NDArray[np.float32], NDArray[np.floating]]):
    r"""Steer an ensemble of loads through a demand-response event.

    ## Description

    An aggregator steers an ensemble of loads through a demand-response event. Every load sits at one of `n` power
    levels and moves between them by itself, with the *default* transition matrix. Every quarter of an hour the
    aggregator may deform these probabilities. It earns the utility of the levels the loads reach, and pays for the
    discomfort: $\gamma$ dollars per nat of divergence of the deformed probabilities from the default ones.

    The problem is a linearly-solvable Markov decision process, so its optimum is known exactly:
    `env.unwrapped.optimal_return(state)`. The default model is a four-hour event on a synthetic campus: 20 levels,
    18 steps, 100 buildings.

    | id | population |
    |----|------------|
    | `dp_ensemble/MeanField-v0` | infinitely many loads; deterministic given the actions |
    | `dp_ensemble/Buildings-v0` | as many loads as the model has buildings (100); multinomial moves |
    | `dp_ensemble/SingleLoad-v0` | one load; categorical moves |

    Every scenario has ids of its own, one for each action mode, such as `dp_ensemble/CampusEvent-tilt-v1`; without a
    mode, `dp_ensemble/CampusEvent-v1`, it takes prices. They all take `population`, and have rewards of unit scale, so
    that learners with their usual settings learn in `dp_ensemble/CampusEvent-v1` as it is.

    A model may have more to it. With *nature* a load takes one of `m` decisions, and nature takes the decision to the
    next state (without it the decision is the next state, and m = n). With a *context* prices, weather or an event
    move by themselves, the same for all loads. A *coupling* charges a cost on the mean power of all loads, for passing
    a limit or missing a target. The optimum stays exact in every case.

    ## Action Space

    Zero always means: do not interfere. The argument `action` chooses a mode, a `float32` box (`float64` actions
    are taken as they are) or a number; modes of your own are bases of tilts, registered with
    `dp_ensemble_env.envs.actions`:

    | mode | space | meaning |
    |------|-------|---------|
    | `"price"` | `Box(-1, 1, (1,))` | one virtual price: tilt = −action · s_t · (power rescaled to [−1, 1]) |
    | `"tilt"` (default) | `Box(-1, 1, (m,))` | attraction of each decision: tilt = action · s_t; contains the optimum |
    | `"policy"` | `Box(0, 1, (n, m))` | the probabilities of the decisions themselves |
    | `"discrete"` | `Discrete(11)` | eleven prices from −1 to 1 in steps of 0.2; 5 leaves the loads alone |

    A policy is masked to the support of the default and normalised row by row; an all-zero row means the default.
    A tilt gives every load the policy row $\pi[b] \propto \mathrm{default}[b]\,\exp(\mathrm{tilt})$. The scale
    $s_t = \sum_{\tau>t} (\max U_\tau - \min U_\tau)/(2\gamma)$ is public and wide enough for the optimal policy
    (a model may declare a `tilt_scale` of its own). The power of a decision is that of the states it leads to.
    `env.unwrapped.encode_policy(policy_t)` translates a transition matrix.

    An action outside of the box by rounding (1e-6) is put on its edge; beyond that `step` raises `ValueError`, where
    Gymnasium's own environments clip: such an action is a mistake more often than not. `gymnasium.wrappers.ClipAction`
    clips it.

    ## Observation Space

    `Box(0, 1, (n + 3,), float32)`, or `(n + 3 + f,)` with a context that has `f` features:

    | index | observation | min | max | unit |
    |-------|-------------|-----|-----|------|
    | 0 … n−1 | share of the loads at each power level | 0 | 1 | |
    | n | part of the horizon that is left | 0 | 1 | |
    | n+1 | price of the interval that begins now | 0 | 1 | highest price of the event |
    | n+2 | price of the interval after it | 0 | 1 | highest price of the event |
    | n+3 … n+2+f | features of the context, by default its one-hot code | 0 | 1 | |

    The price is the model's energy price plus the incentive forgone. A model without an event shows the slope of the
    least-squares line of −utility on energy. Prices are scaled by the highest one (and shifted if some are negative).
    With a context they are the prices expected in it. With a coupling its limit or target at the ends of the two
    intervals stands in their place, in parts of the greatest power (1 where there is no limit): that is what
    instances differ in.

    ## Rewards

    Dollars per building: $\sum_a \rho_{t+1}[a] U_{t+1}[a] - \gamma \sum_b \rho_t[b]\,\mathrm{KL}(\pi_t[b] \|
    \mathrm{default}[b])$ with $\rho$ the shares. Undiscounted; the return of the optimal policy from state `b` is
    $\gamma \log z_0[b] - U_0[b]$ on average (exactly, in the mean field without a context). With nature, $\rho_{t+1}$
    is where it leads; with a context, $U_{t+1}$ is that of the context on arrival; the cost of a coupling is taken off
    the utility. `rewards="unit"` divides rewards, and nothing else, by `env.unwrapped.reward_unit`: the largest
    utility in size, a public number.

    `info` has these keys at `reset` and at every `step`:

    | key | type | meaning | unit |
    |-----|------|---------|------|
    | `time` | int | decisions taken so far | |
    | `utility` | float | first part of the reward (0 at reset) | $ per building |
    | `discomfort` | float | second part, which is subtracted (0 at reset) | $ per building |
    | `power_kw` | float | mean power of a building | kW |
    | `curtailment_kw` | float | expected uncontrolled power from the same start, less `power_kw` | kW |
    | `optimal_return` | float | optimal expected return of this episode, from its start | $ per building |

    With a context also `context`, the number of the present one; with a coupling also `cost`, the kW per building by
    which the limit is passed or the target missed, for constrained learning. The curtailment and
    `default_occupancy` compare with the uncontrolled ensemble in the same contexts.
    With `infos="all"` also `occupancy` and `default_occupancy`, `float64` arrays of shape (n,): the shares, and what
    they would be expected to be had nobody interfered.

    ## Starting State

    A state is drawn from the model's `initial` distribution and the whole population starts there; in a model with
    `spread_start` the loads are spread over the states by it, each load of a finite population on its own.
    `reset(options={"state": 3})` chooses the state; `reset(options={"occupancy": shares})` chooses a distribution, from
    which the loads of a finite population are drawn independently. `reset(options={"context": 1})`
    chooses the first context.

    The contexts of an episode are drawn when it begins. They depend on the seed and the number of the episode alone,
    not on what is done, so that all agents, populations and action modes meet the same ones.

    `reset(seed=...)` fixes everything in the episode but the release (see Privacy). Moves and start states come from a
    compiled stream of random numbers that is seeded by the same seed; `np_random` is used to seed it when no seed is
    given, or when you replace `np_random`.

    ## Episode End

    The horizon belongs to the task and time is observed, so the last step (the 18th, by default) returns
    `terminated=True`. Nothing is ever truncated. Stepping on is refused until `reset`.

    ## Privacy

    *What is private*: the default transition matrix, which is estimated from meter data, its counts, and whatever else
    the model does not declare public (`EnsembleModel.public_fields`): start states, customer baseline, notes. The
    support of the matrix, the power levels and the prices count as public. With `privacy` the environment is built on
    `model.public(release)`: without a declaration all start states are equally likely, and there is no baseline.
    *From whom*: from whoever sees the environment, its trajectories or an agent trained in it.
    *How*: with `privacy` (or its shorthand `k`), the dynamics **and** the reference of the discomfort are one release
    of the matrix (for the Dirichlet mechanism a smaller `k` is noisier; `"public"` uses no data at all). Everything
    that happens in the environment afterwards is post-processing of the release.
    *Under which adjacency*: two matrices whose rows differ by at most `h` (L1), two entries a row; see
    `dp_ensemble_env.privacy`. A bound that holds for all inputs needs `floor > 0`.
    *What is spent*: `env.unwrapped.ledger` knows. Environments of one process share a ledger unless they are given one
    or a budget, so that what they draw is added up. With `k=None` the ledger is the environment's own and reports an
    infinite ε: nothing is private.
    *What leaves*: a pickle, `env.spec` and `env.settings` hold public fields and the release, nothing else. So an
    unpickled environment with `redraw="episode"` cannot draw again.

    The release depends on the true matrix, the mechanism with all its settings and `release_seed`: no two draws share
    a stream of random numbers. All sub-environments of any vectoriser share one matrix, it survives every `reset`, and
    the ledger is charged for it once (again, if another `h` is claimed). **A seeded release can be
    repeated by whoever knows the seed and the method**, and the default seed is 0: that suits experiments. For a
    release to be published, draw it from the operating system's entropy and pass it in:
    `privacy=ledger.release(mechanism("dirichlet:k=50,floor=0.05"), model.default)`.

    With `redraw="episode"` every reset takes the next release of the sequence that `release_seed` fixes and charges it;
    when the budget is spent, `reset` raises `PrivacyBudgetExceeded` and the episode under way, if any, goes on.

    ## Arguments

    | argument | default | meaning |
    |----------|---------|---------|
    | `model` | `None` | an `EnsembleModel` or the name of a scenario; `None` is `"campus-event"` |
    | `population` | `"mean-field"` | `"mean-field"`, `"buildings"`, `"single"` or a number of loads; set by the id |
    | `action` | `"tilt"` | `"price"`, `"tilt"`, `"policy"`, `"discrete"`, or one that you registered; set by the id |
    | `instance` | `0` | which instance of the scenario |
    | `split` | `"train"` | the set that the instance belongs to: `"train"`, `"validation"` or `"test"` |
    | `privacy` | `None` | a mechanism such as `"dirichlet:k=50,floor=0.05"`, or a `Release`; `None` is the truth |
    | `k` | `None` | shorthand for the Dirichlet mechanism: its concentration |
    | `floor` | `0.0` | with `k`: least probability of a possible transition before the draw |
    | `release` | `None` | shorthand: a `Release` made elsewhere, or the path of a saved one |
    | `release_seed` | `None` | seed of the release; `None` means 0 |
    | `redraw` | `"never"` | `"never"` or `"episode"` |
    | `budget` | `None` | `(epsilon, delta)` that the releases must not exceed |
    | `ledger` | `None` | a `PrivacyLedger`, or the path of one, to charge; by default that of the process |
    | `h` | `None` | adjacency for the ledger; by default the ledger's own |
    | `infos` | `"basic"` | `"basic"` or `"all"` |
    | `rewards` | `"dollars"` | `"dollars"` or `"unit"`: of order one; set by the ids of version 1 |
    | `render_mode` | `None` | `"human"`, `"rgb_array"` or `"ansi"` |

    ```python
    import gymnasium
    env = gymnasium.make("dp_ensemble_env:dp_ensemble/MeanField-v0", k=50, floor=0.01)
    observation, info = env.reset(seed=0)
    policy = env.unwrapped.optimal_policy
    total, done = 0.0, False
    while not done:
        action = env.unwrapped.encode_policy(policy[info["time"]])
        observation, reward, done, _, info = env.step(action)
        total += reward
    print(total, info["optimal_return"])
    ```

    ## Version History

    * v1: ids by scenario and action mode; prices unless the id says otherwise; rewards of unit scale
    * v0: first version; tilts, rewards in dollars
    """

    metadata: dict[str, Any] = {"render_modes": RENDER_MODES, "render_fps": RENDER_FPS}

    def __init__(
        self,
        model: EnsembleModel | str | None = None,
        population: str | int = "mean-field",
        action: str = "tilt",
        *,
        render_mode: str | None = None,
        **options: Unpack[Options],
    ) -> None:
        if render_mode is not None:
            check_choice(render_mode, "render_mode", RENDER_MODES)
        self.render_mode = render_mode
        self._task = Task(EnvSettings.of(model, population, action, **options), autoreset=False)
        self.observation_space = self._task.observation_space
        self.action_space = self._task.action_space
        n, horizon = self._task.model.n_states, self._task.model.horizon
        self._horizon, self._width, self._shape = horizon, self._task.width, self._task.action_shape
        self._ints, self._common = self._task.ints, self._task.common
        self._kernels = self._task.kernel.packed()[None, :]
        self._counters, self._occupancy = self._task.arrays(1)
        self._traces = np.zeros((horizon + 2, 1))
        self._values = np.zeros((self._task.values, 1))
        self._flat_values = self._values.reshape(-1)
        self._start: FloatArray = np.zeros(n)
        self._time, self._optimal, self._episodes = -1, 0.0, 0
        self._unit, self._coupled = self._task.unit, self.model.coupling is not None
        self._more = self._task.infos == "all" or self._coupled or self.model.context is not None
        self._stream_source: np.random.Generator | None = None
        self._renderer: Renderer | None = None
        self._power_trace: list[float] = []
        self._idle_trace: list[float] = []
        self._reward_trace: list[float] = []
        self._advance = STEPS[self._task.dynamics]

    # ------------------------------------------------------------ the episode
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start an episode; ``options`` may hold ``state`` or ``occupancy``, and ``context``."""
        n = self._task.model.n_states
        chosen = check_options(options, ("state", "occupancy", "context"))
        state, given = -1, np.zeros(n)
        if "state" in chosen:
            state = check_state(chosen["state"], n)
        elif "occupancy" in chosen:
            state, given = -2, check_occupancy(chosen["occupancy"], n)
        context = check_context(chosen["context"], self._task.model) if "context" in chosen else -1
        if self._task.redraw == "episode" and self._episodes > 0:
            self._task.kernel = self._task.draw(self._episodes)  # raises before anything else has changed
            self._kernels[0] = self._task.kernel.packed()
        self._episodes += 1
        super().reset(seed=seed)
        if seed is not None:
            self._counters[self._task.streams, 0] = seed_words(seed)
        elif self._stream_source is None or self._stream_source is not self._np_random:
            self._counters[self._task.streams] = random_words(self.np_random, 1)
        self._stream_source = self._np_random
        observation = np.empty((1, self._width), np.float32)
        self._restart(state, given, context, observation)
        self._time, self._start = 0, self.occupancy
        if self._coupled and state != -1:
            self._traces[0] = self._task.optimal_return(self._start)
        self._optimal = float(self._traces[0, 0])
        if self.render_mode is not None:
            self._power_trace, self._reward_trace = [float(self._values[dyn.POWER, 0])], []
            self._idle_trace = self._power_trace.copy()
            if self.render_mode == "human":
                self.render()
        return observation[0], self._info(self._flat_values.tolist())

    def _restart(self, state: int, given: FloatArray, context: int, observation: NDArray[np.float32]) -> None:
        arrays = self._ints, self._common, self._kernels, self._counters, self._traces, self._occupancy
        starts = np.ones(1, np.bool_), np.array([state]), given[None, :]
        if self._task.general:
            gen.reset_general(*arrays, *starts, np.array([context]), observation, self._values)
        else:
            dyn.reset_rows(*arrays, *starts, observation, self._values)

    def step(self, action: NDArray[np.floating] | Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Move the ensemble one step under `action`; a bad action is refused and changes nothing."""
        if (
            action.__class__ is not np.ndarray
            or action.shape != self._shape
            or (action.dtype != FLOAT32 and action.dtype != FLOAT64)
            or not action.flags.carray
        ):
            action = self._task.as_action(action, self._shape)
        observation = np.empty((1, self._width), np.float32)
        fault = self._advance(
            self._ints,
            self._common,
            self._kernels,
            self._counters,
            self._traces,
            self._occupancy,
            action.reshape(1, -1),
            observation,
            self._values,
            0,
            0,
        )
        if fault:
            return EnsembleEnv.step(self, self._task.mended(fault, action, self._shape))
        self._time += 1
        values = self._flat_values.tolist()
        if self.render_mode is not None:
            self._power_trace.append(values[dyn.POWER])
            self._idle_trace.append(values[dyn.POWER] + values[dyn.CURTAILMENT])
            self._reward_trace.append(values[dyn.REWARD])
            if self.render_mode == "human":
                self.render()
        reward = values[0] if self._unit is None else values[0] / self._unit
        return observation[0], reward, self._time == self._horizon, False, self._info(values)

    def _info(self, values: list[float]) -> dict[str, Any]:
        info: dict[str, Any] = {
            "time": self._time,
            "utility": values[1],
            "discomfort": values[2],
            "power_kw": values[3],
            "curtailment_kw": values[4],
            "optimal_return": self._optimal,
        }
        if self._more:
            self._tell_more(info, values)
        return info

    def _tell_more(self, info: dict[str, Any], values: list[float]) -> None:
        """Add what not every environment tells."""
        if self._task.model.context is not None:
            info["context"] = self.context
        if self._coupled:
            info["cost"] = values[gen.VIOLATION]
        if self._task.infos == "all":
            info["occupancy"] = self.occupancy
            info["default_occupancy"] = self.default_occupancy

    # ------------------------------------------------------------ what is going on
    @property
    def time(self) -> int:
        """Decisions taken in this episode; -1 before the first reset."""
        return self._time

    @property
    def occupancy(self) -> FloatArray:
        """Share of the loads at each level, float64."""
        n = self._task.model.n_states
        if self._occupancy.size == 0:  # one load, whose state is known
            shares = np.zeros(n)
            shares[self._counters[dyn.STATE, 0]] = 1.0
            return shares
        result: NDArray[np.float64] = self._occupancy[0, :n] / max(self._task.loads, 1)
        return result

    @property
    def default_occupancy(self) -> FloatArray:
        """What the shares would be expected to be by now had nobody interfered (in the contexts that came up)."""
        if self._task.general:
            return self._occupancy[0, self._task.model.n_states :].copy()
        return follow_default(self._task.model, self._start, self._time)

    @property
    def context(self) -> int:
        """The present context; 0 where there is none."""
        return int(self._counters[gen.PATH + max(self._time, 0), 0]) if self._task.general else 0

    def encode_policy(
        self,
        policy_t: ArrayLike,
        time: int | None = None,
        dtype: DTypeLike = np.float32,
        context: int | None = None,
    ) -> NDArray[Any]:
        """Return the action that realises the transition matrix `policy_t`, of shape (n, m).

        Parameters
        ----------
        policy_t : array_like of shape (n, m)
            Row-stochastic, on the support of the default.
        time : int, optional
            Decision it is meant for, by default the present one: the scale of a
            tilt changes with time.
        dtype : dtype
            ``numpy.float64`` keeps all digits.
        context : int, optional
            Context it is meant for, by default the present one.

        Raises
        ------
        ValueError
            In tilt and price mode, if the policy is no such tilt of the default.
        """
        now = max(self._time, 0) if time is None else time
        return self._task.encode_policy(policy_t, now, dtype, self.context if context is None else context)

    # ------------------------------------------------------------ pictures
    def render(self) -> Any:
        """Draw the present state: an array (rgb_array), text (ansi), or a window (human)."""
        if self.render_mode is None:
            gymnasium.logger.warn(
                "render() was called without a render mode; make the environment with render_mode='rgb_array', "
                "'human' or 'ansi'."
            )
            return None
        from dp_ensemble_env.envs.rendering import Renderer

        scene = self.scene()
        if self._renderer is None:
            self._renderer = Renderer(self.render_mode, RENDER_FPS)
        return self._renderer.draw(scene)

    def scene(self) -> Scene:
        """Return what there is to see now, before anything is drawn; without a render mode, nothing was kept of it."""
        from dp_ensemble_env.envs.scene import Scene

        if self._time < 0:
            raise gymnasium.error.ResetNeeded("there is nothing to draw yet; call reset() before render().")
        return Scene(
            model=self._task.model,
            title=population_title(self._task),
            time=self._time,
            occupancy=self.occupancy,
            default_occupancy=self.default_occupancy,
            power_kw=np.array(self._power_trace),
            default_power_kw=self._uncontrolled_power(),
            rewards=np.array(self._reward_trace),
            optimal_return=self._optimal,
            privacy=self._task.privacy_line(),
            contexts=None if self.model.context is None else self._counters[gen.PATH :, 0][: self._time + 1].copy(),
        )

    def _uncontrolled_power(self) -> FloatArray:
        """Return the uncontrolled power at times 0 … T: in the contexts that came up, then as expected now."""
        if isinstance(self._task.kernel, Kernel):
            return self._start @ self._task.kernel.reference_kw
        ahead = uncontrolled_ahead(self._task.model, self.default_occupancy, self.context, self._time)
        return np.concatenate([self._idle_trace, ahead])

    def close(self) -> None:
        """Close the window, if there is one."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    # ------------------------------------------------------------ copies
    def __getstate__(self) -> dict[str, Any]:
        # Windows cannot be copied, and compiled functions are found again by name (so that their cache is used).
        return {**self.__dict__, "_renderer": None, "_advance": None, "_flat_values": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(writeable(state))
        self._task.check_pickled(self._counters)
        self._ints, self._common = self._task.ints, self._task.common
        self._advance = STEPS[self._task.dynamics]
        self._flat_values = self._values.reshape(-1)


def follow_default(model: EnsembleModel, start: FloatArray, time: int) -> FloatArray:
    """Follow a distribution for `time` steps of the default dynamics."""
    shares = start
    for t in range(time):
        shares = shares @ (model.default if model.default.ndim == 2 else model.default[t])
    return shares


def population_title(task: Task) -> str:
    """Name the population for a picture."""
    return "Mean field" if task.loads == 0 else "One load" if task.loads == 1 else f"{task.loads} loads"
