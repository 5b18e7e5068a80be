r"""The environment as pure functions of arrays: one plain definition for NumPy, PyTorch and JAX.

``reset`` and ``step`` are stateless. So the same few lines are the test oracle of the compiled environments, a
*differentiable* environment in PyTorch (the mean field is smooth in the action), and an environment for ``jax.jit``,
``jax.vmap`` and ``jax.lax.scan``.

Every scenario, population, action mode and context works as in `EnsembleEnv`; time, context, action and the loads may
have leading axes of equal length, one entry an environment::

    from dp_ensemble_env.envs import functional

    params = functional.make("spot", action="tilt", backend="torch")
    state, observation = functional.reset(params, key=torch.Generator().manual_seed(0), batch=(64,))
    state, observation, reward, done, info = functional.step(params, state, action, key)

A key is the library's source of randomness: a `numpy.random.Generator`, a `torch.Generator`, or a key of
``jax.random``. A step after the end of an episode returns zero rewards and does not advance the time: call `reset`, or
use `step_autoreset`. `Gymnax` wraps the two functions in the signatures of that library.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from dp_ensemble_env.envs import actions
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.envs.tables import Row
from dp_ensemble_env.envs.vector import EnsembleVectorEnv
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.shapes import sizes
from dp_ensemble_env.tools.validation import check_choice

__all__ = ["Gymnax", "Params", "State", "make", "reset", "step", "step_autoreset"]

BACKENDS = ("numpy", "torch", "jax")
#: An array of the library in use.
Array = Any
Key = Any


@dataclass(frozen=True, eq=False)
class Params:
    """The problem as arrays of one library; see `EnsembleModel.tables` for the shapes."""

    behaviour: Array  #: (T, c, n, m)
    nature: Array  #: (T, c, m, n)
    moves: Array  #: (T, c, c) of the context
    utility: Array  #: (T + 1, c, n)
    power: Array  #: (n,)
    initial: Array  #: (n,) distribution of the loads at the start
    start: Array  #: (c,) distribution of the context at the start
    basis: Array  #: (T or 1, c or 1, d, m) nats; in tilt mode the scale, (T, 1, 1, 1); empty where actions are policies
    clock: Array  #: (T + 1, c, 1 + ahead + f) what an observation holds after the shares
    level: Array  #: (T + 1,) of the coupling
    weight: Array  #: (T + 1,) of the coupling; zero without one
    worth: Array  #: (T, c, m) utility to expect after a decision if nobody interferes later, for rewards in points
    later: Array  #: (T, c, L, m) power to expect then, at the L times and contexts that may come
    later_time: Array  #: (T, c, L)
    later_chance: Array  #: (T, c, L)
    penalty: Array  #: dollars per nat
    point: Array  #: the dollars that a point is worth
    loads: int = 0  #: number of loads, 0 for the mean field
    mode: str = "basis"  #: ``"basis"``, ``"tilt"``, ``"policy"`` or ``"discrete"``
    levels: int = 0  #: number of discrete actions
    tracking: bool = False  #: whether the coupling is a target, else a limit
    spread: bool = False  #: whether loads start spread over the states
    shown: bool = True  #: whether observations show the shares
    points: bool = True  #: whether rewards are points, else dollars

    @property
    def horizon(self) -> int:
        """Number of decisions, T."""
        return int(self.behaviour.shape[0])

    @property
    def n_states(self) -> int:
        """Number of states."""
        return int(self.power.shape[0])

    @property
    def observation_size(self) -> int:
        """Length of an observation."""
        return self.n_states + int(self.clock.shape[-1])

    @property
    def action_shape(self) -> tuple[int, ...]:
        """Shape of an action; empty for a discrete one."""
        if self.mode == "policy":
            return (self.n_states, int(self.behaviour.shape[-1]))
        if self.mode == "tilt":
            return (int(self.behaviour.shape[-1]),)
        return () if self.mode == "discrete" else (int(self.basis.shape[2]),)

    def __repr__(self) -> str:
        sizes = f"{self.n_states} states, {self.horizon} steps, observation {self.observation_size}"
        return f"Params({sizes}, action {'x'.join(map(str, self.action_shape)) or 'discrete'})"


class State(NamedTuple):
    """The state of an episode."""

    time: Array  #: integers (...)
    context: Array  #: integers (...)
    shares: Array  #: (..., n) share of the loads in each state
    states: Array  #: (..., loads) the state of each load of a finite population; of length zero in the mean field

    def __repr__(self) -> str:
        return f"State({sizes(self)})"


def make(
    env: EnsembleEnv | EnsembleVectorEnv | EnsembleModel | str | None = None,
    *,
    backend: str = "numpy",
    dtype: str = "float64",
    device: Any = None,
    **options: Any,
) -> Params:
    """Return the parameters of an environment.

    An environment is used as it is, with its release. A model or the name of a scenario is passed to
    `EnsembleEnv` together with `options`: ``population=``, ``action=``, ``privacy=``, ``instance=``, ``reward=`` …
    `backend` is ``"numpy"``, ``"torch"`` (on a `device`) or ``"jax"``, `dtype` ``"float64"`` or ``"float32"``; JAX has
    double precision only after ``jax.config.update("jax_enable_x64", True)``.

    Examples
    --------
    >>> import numpy as np
    >>> params = make("campus-event", action="price")
    >>> state, observation = reset(params, np.random.default_rng(0))
    >>> state, observation, reward, done, info = step(params, state, np.zeros(1), np.random.default_rng(0))
    >>> observation.shape, bool(done), round(float(info["discomfort"]), 12)
    ((25,), False, 0.0)
    """
    check_choice(backend, "backend", BACKENDS)
    check_choice(dtype, "dtype", ("float64", "float32"))
    if not isinstance(env, (EnsembleEnv, EnsembleVectorEnv)):
        env = EnsembleEnv(env, **options)
    elif options:
        raise ValueError(
            f"an environment is taken as it is; leave {', '.join(options)} out, or pass a scenario's name."
        )
    if len(env.models) > 1:
        raise ValueError("these parameters describe one instance; choose it: instance=0.")
    settings, model, row, tables = env.settings, env.model, env.row, env.model.tables()
    chosen, coupling, flat = actions.mode(settings.action), model.coupling, np.zeros(model.horizon + 1)
    arrays = {
        "behaviour": tables.behaviour / tables.behaviour.sum(axis=-1, keepdims=True),
        "nature": tables.nature,
        "moves": tables.context,
        "utility": tables.utility,
        "power": model.power_kw,
        "initial": model.initial,
        "start": np.ones(1) if model.context is None else model.context.start,
        "basis": actions.action_scale(model).reshape(-1, 1, 1, 1) if chosen.tilt else actions.basis_of(chosen, model),
        "clock": row.clock,
        "level": flat if coupling is None else np.where(coupling.weight > 0, coupling.level, 0.0),
        "weight": flat if coupling is None else coupling.weight,
        "worth": row.left_alone.worth,
        **_ahead(row),
        "penalty": np.array(model.discomfort_penalty),
        "point": np.array(row.point),
    }
    kind = "policy" if chosen.basis is None else "tilt" if chosen.tilt else "discrete" if chosen.levels else "basis"
    return Params(
        **{name: _array(backend, array, dtype, device) for name, array in arrays.items()},
        loads=settings.loads,
        mode=kind,
        levels=chosen.levels,
        tracking=coupling is not None and coupling.kind == "tracking",
        spread=model.spread_start,
        shown=model.shares_shown,
        points=settings.reward == "points",
    )


def _ahead(row: Row) -> dict[str, Any]:
    """Return what may come after each (time, context), as many entries for each as the longest has."""
    first, shape = row.left_alone.first, row.left_alone.worth.shape
    width = int(np.diff(first).max())
    place = np.minimum(first[:-1, None] + np.arange(width), max(first[-1] - 1, 0))
    time, chance, power = (array[place] for array in row.left_alone.ahead)
    chance = np.where(np.arange(width) < np.diff(first)[:, None], chance, 0.0)
    named = {"later": power, "later_time": time, "later_chance": chance}
    return {name: array.reshape(*shape[:2], width, *array.shape[2:]) for name, array in named.items()}


# ------------------------------------------------------------------ the two functions
def reset(params: Params, key: Key, batch: tuple[int, ...] = ()) -> tuple[State, Array]:
    """Begin episodes of shape `batch`; return the state and the observation."""
    xp = _namespace(params)
    first, second = _split(xp, key, 2)
    context = _draw(xp, params.start, _uniform(params, first, batch))
    time = xp.zeros_like(context)
    count = max(params.loads, 1)
    if params.spread:
        states = _draw(xp, params.initial, _uniform(params, second, (*batch, count)))
    else:  # one state for all of them
        one = _draw(xp, params.initial, _uniform(params, second, (*batch, 1)))
        states = one + xp.zeros((*batch, count), dtype=context.dtype)
    if params.loads == 0 and params.spread:
        shares = xp.broadcast_to(params.initial, (*batch, params.n_states))
    else:
        shares = _shares(xp, params, states)
    state = State(time, context, shares, states if params.loads else states[..., :0])
    return state, observe(params, state)


def step(params: Params, state: State, action: Array, key: Key) -> tuple[State, Array, Array, Array, dict[str, Array]]:
    """Take one step; return the new state, the observation, the reward, whether the episode is over, and the info.

    The info holds ``utility``, ``discomfort`` and ``coupling_cost`` in dollars per load, ``power_kw`` per load, and
    ``cost``, the violation of a coupling, as in the info of the environments. Actions are clipped to their box.
    """
    xp = _namespace(params)
    key_context, key_decision, key_nature = _split(xp, key, 3)
    over = state.time >= params.horizon
    time = xp.where(over, params.horizon - 1, state.time)
    policy, divergence = control(params, time, state.context, action)
    nature = params.nature[time, state.context]
    decided = xp.matmul(state.shares[..., None, :], policy)
    discomfort = params.penalty * xp.sum(state.shares * divergence, axis=-1)
    if params.loads == 0:
        shares, states = xp.matmul(decided, nature)[..., 0, :], state.states
    else:
        loads = xp.sort(state.states, axis=-1)  # equal loads have no names: in the order of the compiled step
        decision = _draw(xp, _rows(xp, policy, loads), _uniform(params, key_decision, tuple(loads.shape)))
        decision = xp.sort(decision, axis=-1)
        states = _draw(xp, _rows(xp, nature, decision), _uniform(params, key_nature, tuple(loads.shape)))
        shares = _shares(xp, params, states)
    moves = params.moves[time, state.context]
    context = _draw(xp, moves, _uniform(params, key_context, tuple(state.context.shape)))
    utility = xp.sum(shares * params.utility[time + 1, context], axis=-1)
    power = xp.sum(shares * params.power, axis=-1)
    violation, charge = _coupling(xp, params, time + 1, power)
    if params.points:
        reward = (_advantage(xp, params, time, state, decided[..., 0, :]) - discomfort) / params.point
    else:
        reward = utility - charge - discomfort
    moved = State(time + 1, context, shares, states)
    moved = State(*(_choose(xp, over, old, new) for old, new in zip(state, moved, strict=True)))
    info = {"utility": utility, "discomfort": discomfort, "power_kw": power, "cost": violation, "coupling_cost": charge}
    zero = xp.zeros_like(reward)
    info = {name: xp.where(over, zero, value) for name, value in info.items()}
    return moved, observe(params, moved), xp.where(over, zero, reward), moved.time >= params.horizon, info


def step_autoreset(
    params: Params, state: State, action: Array, key: Key
) -> tuple[State, Array, Array, Array, dict[str, Array]]:
    """Take one step, and start the next episode at once where one ends (`done` still marks the end)."""
    xp = _namespace(params)
    key_step, key_reset = _split(xp, key, 2)
    moved, observation, reward, done, info = step(params, state, action, key_step)
    fresh, first = reset(params, key_reset, tuple(state.time.shape))
    state = State(*(_choose(xp, done, new, old) for new, old in zip(fresh, moved, strict=True)))
    return state, _choose(xp, done, first, observation), reward, done, info


def observe(params: Params, state: State) -> Array:
    """Return the observation: shares, part of the horizon left, prices, features of the context."""
    xp = _namespace(params)
    shares = state.shares if params.shown else xp.zeros_like(state.shares)
    return xp.concat([shares, params.clock[state.time, state.context]], axis=-1)


def control(params: Params, time: Array, context: Array, action: Array) -> tuple[Array, Array]:
    """Return the policy (..., n, m) that an action stands for, and each state's divergence from the default in nats."""
    xp = _namespace(params)
    default = params.behaviour[time, context]
    if params.mode == "policy":
        given = xp.clip(action, 0.0, 1.0) * xp.astype(default > 0, default.dtype)
        total = xp.sum(given, axis=-1, keepdims=True)
        policy = xp.where(total > 0, given / xp.where(total > 0, total, 1.0), default)
        safe = xp.where(policy > 0, policy, 1.0) / xp.where(policy > 0, default, 1.0)
        return policy, xp.sum(policy * xp.log(safe), axis=-1)
    if params.mode == "discrete":
        numbers = xp.astype(action, params.basis.dtype)[..., None] * (2.0 / (params.levels - 1)) - 1.0
    else:
        numbers = xp.clip(action, -1.0, 1.0)
    basis = params.basis[time * (params.basis.shape[0] > 1), context * (params.basis.shape[1] > 1)]
    tilt = numbers * basis[..., 0] if params.mode == "tilt" else xp.matmul(numbers[..., None, :], basis)[..., 0, :]
    # Each row is shifted by the largest tilt that it can take, so that nothing overflows and something is left.
    reach = xp.where(default > 0, tilt[..., None, :], -xp.inf)
    shifted = reach - xp.max(reach, axis=-1, keepdims=True)
    weights = default * xp.exp(shifted)
    gain = xp.sum(weights, axis=-1, keepdims=True)
    policy = weights / gain
    return policy, xp.sum(policy * xp.where(default > 0, shifted, 0.0), axis=-1) - xp.log(gain)[..., 0]


def _advantage(xp: Any, params: Params, time: Array, state: State, decided: Array) -> Array:
    """Return the dollars that decisions (…, m) gain over leaving the loads alone from here on, discomfort aside."""
    usual = xp.matmul(state.shares[..., None, :], params.behaviour[time, state.context])[..., 0, :]
    gain = xp.sum((decided - usual) * params.worth[time, state.context], axis=-1)
    if params.later.shape[2] == 0:
        return gain
    power, when = params.later[time, state.context], xp.astype(params.later_time[time, state.context], time.dtype)
    expected = (xp.sum(power * y[..., None, :], axis=-1) for y in (usual, decided))
    alone, controlled = (_coupling(xp, params, when, kw)[1] for kw in expected)
    return gain + xp.sum(params.later_chance[time, state.context] * (alone - controlled), axis=-1)


def _coupling(xp: Any, params: Params, time: Array, power: Array) -> tuple[Array, Array]:
    """Return the violation in kW per load and its cost in dollars per load."""
    miss, weight = power - params.level[time], params.weight[time]
    off = xp.abs(miss) if params.tracking else xp.where(miss > 0, miss, 0.0)
    off = xp.where(weight > 0, off, 0.0)
    return off, weight * (off * off if params.tracking else off)


# ------------------------------------------------------------------ libraries
def _array(backend: str, array: Any, dtype: str, device: Any) -> Array:
    if backend == "numpy":
        return np.asarray(array, dtype=dtype)
    if backend == "torch":
        import torch

        return torch.as_tensor(np.array(array), dtype=getattr(torch, dtype), device=device)
    import jax.numpy as jnp

    _register()
    return jnp.asarray(array, dtype=dtype)


def _namespace(params: Params) -> Any:
    """Return the array functions of the library that holds the parameters."""
    from array_api_compat import array_namespace

    return array_namespace(params.power)


@lru_cache(maxsize=1)
def _register() -> None:
    import jax

    names: dict[bool, list[str]] = {True: [], False: []}
    for field in fields(Params):
        names[field.type == "Array"].append(field.name)
    jax.tree_util.register_dataclass(Params, data_fields=names[True], meta_fields=names[False])


def _split(xp: Any, key: Key, count: int) -> Any:
    """Return so many keys; generators that hold a state of their own are used one after the other."""
    if "jax" in xp.__name__:
        import jax

        return jax.random.split(key, count)
    return (key,) * count


def _uniform(params: Params, key: Key, shape: tuple[int, ...]) -> Array:
    """Draw uniform numbers; every random number of an episode comes from here."""
    like = params.power
    if isinstance(like, np.ndarray):
        return np.asarray(key.random(shape), dtype=like.dtype)
    if "torch" in type(like).__module__:
        import torch

        return torch.rand(shape, generator=key, dtype=like.dtype, device=like.device)
    import jax

    return jax.random.uniform(key, shape, dtype=like.dtype)


def _draw(xp: Any, weights: Array, spot: Array) -> Array:
    """Return the index whose cumulated weight first exceeds the uniform `spot`; a weight of zero never comes up."""
    cumulated = xp.cumulative_sum(weights, axis=-1)
    integer = xp.int32 if "jax" in xp.__name__ else xp.int64  # JAX has no longer ones unless told so
    index = xp.sum(xp.astype(cumulated / cumulated[..., -1:] <= spot[..., None], integer), axis=-1)
    return xp.clip(index, 0, int(weights.shape[-1]) - 1)


def _rows(xp: Any, matrix: Array, index: Array) -> Array:
    """Return the rows (..., k, columns) of matrices (..., rows, columns) that an index (..., k) names."""
    return xp.take_along_axis(matrix, xp.broadcast_to(index[..., None], (*index.shape, matrix.shape[-1])), axis=-2)


def _shares(xp: Any, params: Params, states: Array) -> Array:
    numbers = xp.arange(params.n_states, dtype=states.dtype, device=getattr(states, "device", None))
    return xp.mean(xp.astype(states[..., None] == numbers, params.power.dtype), axis=-2)


def _choose(xp: Any, condition: Array, yes: Array, no: Array) -> Array:
    return xp.where(xp.reshape(condition, tuple(condition.shape) + (1,) * (no.ndim - condition.ndim)), yes, no)


class Gymnax:
    """The environment with the signatures of gymnax: keys first, parameters last, the next episode begins at once."""

    def __init__(self, env: Any = None, dtype: str = "float32", **options: Any) -> None:
        self.default_params = make(env, backend="jax", dtype=dtype, **options)

    def reset(self, key: Key, params: Params | None = None) -> tuple[Array, State]:
        """Begin an episode; return observation and state."""
        state, observation = reset(params or self.default_params, key)
        return observation, state

    def step(
        self, key: Key, state: State, action: Array, params: Params | None = None
    ) -> tuple[Array, State, Array, Array, dict[str, Array]]:
        """Move one step; return observation, state, reward, whether the episode is over, and the parts."""
        state, observation, reward, done, info = step_autoreset(params or self.default_params, state, action, key)
        return observation, state, reward, done, info

    def observation_space(self, params: Params | None = None) -> spaces.Box:
        """Return the space of observations."""
        return spaces.Box(0.0, 1.0, ((params or self.default_params).observation_size,), np.float32)

    def action_space(self, params: Params | None = None) -> spaces.Space[Any]:
        """Return the space of actions."""
        chosen = params or self.default_params
        if chosen.mode == "discrete":
            return spaces.Discrete(chosen.levels)
        return spaces.Box(0.0 if chosen.mode == "policy" else -1.0, 1.0, chosen.action_shape, np.float32)
