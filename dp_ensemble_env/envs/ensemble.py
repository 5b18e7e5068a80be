"""The environment: one ensemble of loads through one demand-response event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

import gymnasium
import numpy as np
from gymnasium.utils import seeding
from numpy.typing import ArrayLike, DTypeLike, NDArray

from dp_ensemble_env.envs import step
from dp_ensemble_env.envs.batch import Batch
from dp_ensemble_env.envs.settings import EnvSettings, Options
from dp_ensemble_env.envs.view import RENDER_FPS, START_OPTIONS, BatchView, check_options
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.tools.validation import check_choice

if TYPE_CHECKING:
    from dp_ensemble_env.envs.scene import Scene

FloatArray = NDArray[np.float64]
RENDER_MODES = ["human", "rgb_array", "ansi"]
_EVERYONE = np.ones(1, np.bool_)


class EnsembleEnv(BatchView, gymnasium.Env[NDArray[np.float32], NDArray[np.floating]]):
    r"""Steer an ensemble of loads through a demand-response event.

    ## Description

    An aggregator steers an ensemble of loads through a demand-response event. Every load is at one of `n` power
    levels. Left alone, it moves between them at random, with the probabilities of the *default* transition matrix. At
    every step the aggregator may change these probabilities. It earns the utility of the levels that the loads reach,
    and pays for the discomfort: $\gamma$ dollars per nat of divergence from the default probabilities.

    The problem is a linearly-solvable Markov decision process, so its optimum is known exactly:
    `env.unwrapped.optimal_return(state)`.

    Every scenario has an id, such as `dp_ensemble/Spot-v1`, whose actions are signals, and one id for each action mode,
    such as `dp_ensemble/Spot-tilt-v1`. All ids take `population`:

    | population | loads |
    |------------|-------|
    | `"mean-field"` (default) | infinitely many; deterministic given actions and contexts |
    | a number | that many loads; each moves at random |
    | `"single"` | one load |

    `dp_ensemble/Paper-v1` is the environment of the paper: the campus event (20 levels, 18 steps), tilts, rewards in
    dollars, and the Dirichlet mechanism, `privacy="dirichlet:k=50,floor=0.05,h=0.03"`.

    A model may have three further parts; the optimum stays exact. *Nature*: a load takes one of `m` decisions, and the
    next state follows from it at random (without nature the decision is the next state, and m = n). *Context*: prices,
    weather or an event change at random, the same for all loads. *Coupling*: a cost for mean power that exceeds a limit
    or misses a target.

    ## Action Space

    Zero always means: do not interfere. The argument `action` chooses a mode. Its space is a `float32` box (`float64`
    actions are not rounded) or an integer. To add a mode, register a basis of tilts with
    `dp_ensemble_env.envs.actions`.

    | mode | space | meaning |
    |------|-------|---------|
    | `"signals"` | `Box(-1, 1, (k,))` | k ≤ 8 directions: tilt = Σ_j action_j · u_j(t, context) · d_j |
    | `"price"` | `Box(-1, 1, (1,))` | one virtual price: tilt = −action · u(t, context) · (power in [−1, 1]) |
    | `"tilt"` | `Box(-1, 1, (m,))` | attraction of each decision: tilt = action · s_t; contains the optimum |
    | `"policy"` | `Box(0, 1, (n, m))` | the probabilities of the decisions themselves; contains the optimum |
    | `"discrete"` | `Discrete(11)` | eleven prices from −1 to 1 in steps of 0.2; 5 leaves the loads alone |

    Most learners should use *signals*. Their directions $d_j$ and units $u_j$ (nats) were computed from eight separate
    design instances of the scenario, so that optimal actions are of order one. For your own model they are computed
    from its textbook behaviour, or from lazy random walks (`dp_ensemble_env.envs.signals`). Signals reveal which
    directions matter and how hard to push at each time; in some scenarios even the sign: an action of all ones scores
    97 on the campus event. An `EnsembleEnv` made without an id takes tilts by default.

    Policies are restricted to the support of the default and normalised row by row; a row of zeros means the default.
    A tilt gives every load the policy row $\pi[b] \propto \mathrm{default}[b]\,\exp(\mathrm{tilt})$. The scale
    $s_t = \sum_{\tau>t} (\max U_\tau - \min U_\tau)/(2\gamma)$ is public and large enough for the optimal policy
    (a model may declare its own `tilt_scale`). The power of a decision is the mean power of the states it leads to.
    `env.unwrapped.encode_policy(policy_t)` converts a transition matrix to an action.

    Actions outside the box are clipped, with one warning for each environment. NaN raises an error and changes nothing.

    ## Observation Space

    `Box(0, 1, (n + 5,), float32)`, or `(n + 5 + f,)` with a context that has `f` features:

    | index | observation | min | max | unit |
    |-------|-------------|-----|-----|------|
    | 0 … n−1 | share of the loads in each state | 0 | 1 | |
    | n | fraction of the horizon left | 0 | 1 | |
    | n+1 … n+4 | prices of the interval that begins now and of the next three | 0 | 1 | highest price |
    | n+5 … n+4+f | features of the context, by default its one-hot code | 0 | 1 | |

    The price is the energy price plus the incentive forgone, or, in a model without an event, the slope of a
    least-squares fit of −utility to energy. Prices are divided by the highest one (and shifted if some are negative);
    the last one repeats at the end. With a context they are expected prices. With a coupling, observations show its
    limit or target at the ends of the four intervals instead, as a fraction of the greatest power (1 without a limit),
    because instances differ in it. `ahead` changes the number of intervals; `Paper-v1` shows two.
    `env.unwrapped.layout` reads time and context from an observation.

    ## Rewards

    The reward of a step, in *points*, compares its action with leaving the loads alone from now on. Doing nothing earns
    0 at every step; the optimal policy earns 100 per episode on average. So the mean return over the start distribution
    is the score that this package reports everywhere.

    Let $y$ and $y^0$ be the expected decisions with and without the action, $G_t[w, a]$ the expected utility after
    decision `a` if nobody interferes later, and $R^*$ and $R^0$ the optimal and the uncontrolled return. The reward is
    $100/(R^* - R^0)$ times the gain $\sum_a (y_a - y^0_a) G_t[w, a]$ minus the discomfort
    $\gamma \sum_b \rho_t[b]\,\mathrm{KL}(\pi_t[b] \| \mathrm{default}[b])$.
    Without discounting, the optimal policy is the same as with dollars, and the next context adds no noise. The reward
    looks ahead for the agent: even an agent that only maximises the next reward does well. With a coupling it leaves
    out the cost of random fluctuations in a finite population (at the optimum with 200 loads: 4 points on the feeder,
    8 on tracking). With a release, all these quantities are computed from the release.

    `reward="dollars"` is the paper's reward per load: $\sum_a \rho_{t+1}[a] U_{t+1}[a]$ minus the same discomfort,
    with $\rho$ the shares. The return of the optimal policy from state `b` is then $\gamma \log z_0[b] - U_0[b]$ on
    average (exactly, in the mean field without a context). With nature, $\rho_{t+1}$ are the shares after its move;
    with a context, $U_{t+1}$ is the utility in the next context; the cost of a coupling is subtracted.

    `info` has these keys at `reset` and at every `step`:

    | key | type | meaning | unit |
    |-----|------|---------|------|
    | `time` | int | decisions taken so far | |
    | `utility` | float | first part of the reward in dollars (0 at reset) | $ per load |
    | `discomfort` | float | second part, which is subtracted (0 at reset) | $ per load |
    | `power_kw` | float | mean power of a load | kW |
    | `optimal_return` | float | optimal expected return of this episode, from its start | $ per load |
    | `optimal_points` | float | the same, above uncontrolled loads | points |

    With a context also `context`, its number (contexts that look the same share one). With a coupling also
    `coupling_cost`, the third part of the reward in dollars, which is subtracted, and `cost`, the kW per load by which
    the power exceeds the limit or misses the target, for constrained learning. With `instance=None` also `instance`.
    With `infos="all"`, which is slower, also `occupancy` and `default_occupancy`, `float64` arrays of shape (n,): the
    shares, and the expected shares of uncontrolled loads in the same contexts; and `curtailment_kw`, the uncontrolled
    power minus `power_kw`. If the model hides the shares, both arrays are zeros, as in observations.

    **Hidden contexts.** Contexts with equal features look the same in observations, infos, pictures and `env.spec`;
    expected prices are averaged over them. An agent that remembers its observations can always tell them apart. The
    reward may depend on the hidden context, and `env.unwrapped` knows it: do not show either to an agent under test.

    ## Starting State

    All loads start in one state, drawn from the model's `initial` distribution. With `spread_start` they are spread
    over the states by that distribution; in a finite population each load draws its own state.
    `reset(options={"state": 3})` chooses the state, `reset(options={"occupancy": shares})` the distribution, and
    `reset(options={"context": 1})` the first context.

    The contexts of an episode are drawn when it begins. They depend only on the seed and the number of the episode, not
    on actions, so all agents, populations and action modes meet the same contexts.

    `reset(seed=...)` fixes everything in the episode except the release (see Privacy).

    ## Episode End

    The horizon is part of the task and the time is observed, so the last step returns `terminated=True`. Nothing is
    ever truncated. A further step raises an error until `reset`.

    ## Privacy

    *Private data*: the default transition matrix, which is estimated from meter data, its counts, and everything that
    the model does not declare public (`EnsembleModel.public_fields`): start states, customer baseline, notes. The
    support of the matrix, the power levels and the prices count as public. With `privacy` the environment is built on
    `model.public(release)`. Without a declaration it makes all start states equally likely and has no baseline.
    *Protected from*: everyone who sees the environment, its trajectories or an agent trained in it.
    *Method*: with `privacy`, the dynamics **and** the reference for the discomfort come from one release of the matrix
    (for the Dirichlet mechanism a smaller `k` is noisier; `"public"` uses no data at all). Everything that happens in
    the environment afterwards is post-processing of the release.
    *Adjacency*: for the Dirichlet mechanism two matrices whose rows differ by at most `h` (L1) in two entries, with `h`
    from the spec (`"dirichlet:k=50,floor=0.05,h=0.03"`) or the ledger. A bound for all inputs needs `floor > 0`.
    *Privacy spent*: `env.unwrapped.ledger` adds up all draws. Environments in one process share a ledger unless you
    pass another. Without `privacy` each environment has its own ledger, which reports an infinite ε: nothing is
    private. To set a budget, pass `ledger=PrivacyLedger(budget=(1.0, 1e-6))`.
    *Copies*: a pickle and `env.settings` hold public fields and the release, nothing else. `env.spec` holds neither a
    private model nor a ledger; for a scenario's id it keeps the arguments, including `release_seed`.

    All sub-environments share one release. It survives every `reset`, and the ledger is charged once. **Anyone who
    knows the seed can remove the noise**, and the default seed is 0, which suits experiments. To publish a release,
    draw it from the operating system's entropy and pass it in:
    `privacy=ledger.release(mechanism("dirichlet:k=50,floor=0.05"), model.default)`.

    With `redraw="episode"` every reset draws and charges the next release of the sequence that `release_seed` fixes.
    Once the budget is spent, `reset` raises `PrivacyBudgetExceeded`; a running episode continues.

    ## Arguments

    | argument | default | meaning |
    |----------|---------|---------|
    | `model` | `None` | an `EnsembleModel`, a list of them (each episode draws one), or the name of a scenario |
    | `population` | `"mean-field"` | `"mean-field"`, `"single"` or a number of loads |
    | `action` | `"tilt"` | `"signals"`, `"price"`, `"tilt"`, `"policy"`, `"discrete"` or your own; ids set it |
    | `reward` | `"points"` | `"points"`, or `"dollars"` |
    | `ahead` | `4` | number of steps for which observations show the price, limit or target |
    | `scenario` | `None` | set by the id, which then refuses `model` |
    | `instance` | `0` | an instance of the scenario; `None` draws one of the split at each reset |
    | `split` | `"train"` | the instance's set: `"train"`, `"validation"` or `"test"` |
    | `privacy` | `None` | a mechanism (`"dirichlet:k=50,floor=0.05"`), a `Release` or its path; `None`: not private |
    | `ledger` | `None` | a `PrivacyLedger` to charge, or its path; by default one ledger for the process |
    | `release_seed` | `None` | seed of the release; `None` means 0 |
    | `redraw` | `"never"` | `"never"` or `"episode"` |
    | `infos` | `"basic"` | `"basic"` or `"all"` |
    | `render_mode` | `None` | `"human"`, `"rgb_array"` or `"ansi"` |

    ```python
    import gymnasium
    import dp_ensemble_env
    env = gymnasium.make("dp_ensemble/Paper-v1")
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

    * v1: first version
    """

    metadata: dict[str, Any] = {"render_modes": RENDER_MODES, "render_fps": RENDER_FPS}

    def __init__(
        self,
        model: EnsembleModel | Sequence[EnsembleModel] | str | None = None,
        population: str | int = "mean-field",
        action: str = "tilt",
        *,
        render_mode: str | None = None,
        **options: Unpack[Options],
    ) -> None:
        if render_mode is not None:
            check_choice(render_mode, "render_mode", RENDER_MODES)
        self.render_mode = render_mode
        self._batch = batch = Batch(
            EnvSettings.of(model, population, action, **options), 1, pictures=render_mode is not None
        )
        self.observation_space, self.action_space = batch.observation_space, batch.action_space
        self._horizon, self._width, self._shape = self.model.horizon, batch.width, batch.action_shape
        self._values = np.zeros((step.VALUES, 1))
        self._time, self._optimal = -1, [0.0, 0.0]
        self._coupled = self.model.coupling is not None
        self._more = batch.infos == "all" or self._coupled or batch.several or self.model.context is not None

    # ------------------------------------------------------------ the episode
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start an episode; ``options`` may hold ``state`` or ``occupancy``, and ``context``."""
        batch, start = self._batch, self._start(check_options(options, START_OPTIONS))
        if seed is not None:
            seeding.np_random(seed)  # refuses what is no seed
        batch.next_release(_EVERYONE)  # raises before anything else has changed
        super().reset(seed=seed)
        self._seed_streams(None if seed is None else [seed], _EVERYONE)
        observation = np.empty((1, self._width), np.float32)
        batch.reset(_EVERYONE, start, observation, self._values)
        self._time, self._optimal = 0, batch.state.best[0].tolist()
        if self.render_mode == "human":
            self.render()
        return observation[0], self._info(self._values[:, 0].tolist())

    def step(self, action: NDArray[np.floating] | Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Move the ensemble one step under `action`; a refused action changes nothing."""
        observation = np.empty((1, self._width), np.float32)
        self._batch.step(action, self._shape, observation, self._values)
        self._time += 1
        values = self._values[:, 0].tolist()
        if self.render_mode == "human":
            self.render()
        return observation[0], values[step.REWARD], self._time == self._horizon, False, self._info(values)

    def _info(self, values: list[float]) -> dict[str, Any]:
        info: dict[str, Any] = {
            "time": self._time,
            "utility": values[step.UTILITY],
            "discomfort": values[step.DISCOMFORT],
            "power_kw": values[step.POWER],
            "optimal_return": self._optimal[0],
            "optimal_points": self._optimal[1],
        }
        if self._more:
            self._tell_more(info, values)
        return info

    def _tell_more(self, info: dict[str, Any], values: list[float]) -> None:
        if self.model.context is not None:
            info["context"] = int(self.model.context.shown[self.context])
        if self._coupled:
            info["cost"], info["coupling_cost"] = values[step.MISS], values[step.CHARGE]
        if self._batch.several:
            info["instance"] = int(self._batch.state.row[0])
        if self._batch.infos == "all":
            default, seen = self.default_occupancy, float(self.model.shares_shown)
            info["occupancy"], info["default_occupancy"] = seen * self.occupancy, seen * default
            info["curtailment_kw"] = self._batch.curtailment(0, default, values[step.POWER])

    # ------------------------------------------------------------ what is going on
    @property
    def time(self) -> int:
        """Decisions taken in this episode; -1 before the first reset."""
        return self._time

    @property
    def occupancy(self) -> FloatArray:
        """Share of the loads at each level, float64."""
        shares: FloatArray = self._batch.occupancy[0]
        return shares

    @property
    def default_occupancy(self) -> FloatArray:
        """Expected shares of uncontrolled loads in the same contexts, float64."""
        return self._batch.default_occupancy(0)

    @property
    def context(self) -> int:
        """The present context; 0 where there is none."""
        return int(self._batch.state.path[0, max(self._time, 0)])

    def encode_policy(
        self, policy_t: ArrayLike, time: int | None = None, dtype: DTypeLike = np.float32, context: int | None = None
    ) -> NDArray[Any]:
        """Return the action that gives `policy_t`, by default at the current time and in the current context."""
        now = max(self._time, 0) if time is None else time
        return super().encode_policy(policy_t, now, dtype, self.context if context is None else context)

    def render(self) -> Any:
        """Draw the current state: an array (rgb_array), text (ansi), or a window (human)."""
        frames = self._frames(self.render_mode)
        return frames[0] if frames else None

    def scene(self) -> Scene:
        """Return the data of the current picture; power and rewards are recorded only with a render mode."""
        return self._batch.scene(0)

    def close(self) -> None:
        """Close the window, if there is one."""
        self._close_renderer()


def precompile() -> None:
    """Take one step, which compiles what every population and action mode runs, and keeps it on disk.

    `make demo` and `make test` do so at installation; otherwise the first `reset` and `step` take some seconds more.
    """
    from dp_ensemble_env.tools.console import Progress

    with Progress("compiling the environments, once"):
        env = EnsembleEnv("spot", action="price")
        env.reset(seed=0)
        env.step(np.zeros(1))
