"""The arrays of a model: their shapes, what may be left out, and how it is filled in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.tools.validation import as_float_array, as_times, as_utility, check_shape, check_stochastic

if TYPE_CHECKING:
    from dp_ensemble_env.context import Context

FloatArray = NDArray[np.float64]


def freeze(described: Any, **fields: Any) -> None:
    """Set fields of a frozen dataclass, arrays as read-only copies."""
    for name, value in fields.items():
        if isinstance(value, np.ndarray):
            value = value.copy()
            value.setflags(write=False)
        object.__setattr__(described, name, value)


def sizes(arrays: Any) -> str:
    """Write the names of a named tuple's arrays with their shapes, for a `repr`."""
    shapes = ("x".join(map(str, np.shape(array))) or "scalar" for array in arrays)
    return ", ".join(f"{name} {shape}" for name, shape in zip(arrays._fields, shapes, strict=True))


class Tables(NamedTuple):
    """A whole problem as plain arrays, every axis written out: for oracles and for other people's solvers."""

    behaviour: FloatArray
    """(T, c, n, m)."""
    nature: FloatArray
    """(T, c, m, n)."""
    context: FloatArray
    """(T, c, c)."""
    utility: FloatArray
    """(T + 1, c, n)."""

    def __repr__(self) -> str:
        return f"Tables({sizes(self)})"


@dataclass(frozen=True)
class Axis:
    """One of the quantities that a state is made of, for pictures: its name and its values, numbers or words."""

    name: str
    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(self.values))

    def __len__(self) -> int:
        return len(self.values)


def check_nature(nature: Any, horizon: int, context: Context | None, decisions: int, states: int) -> FloatArray | None:
    """Return nature of shape (m, n), (T, m, n) or (T or 1, c, m, n)."""
    if nature is None:
        if decisions != states:
            raise ValueError(
                f"default has {states} states and {decisions} decisions; without nature a decision is the next state, "
                f"so pass nature of shape ({decisions}, {states}), or a square default."
            )
        return None
    array = check_stochastic(nature, "nature", square=False)
    check_leading(array, "nature", horizon, context, "(m, n)")
    if array.shape[-2:] != (decisions, states):
        raise ValueError(
            f"nature must have shape ({decisions}, {states}), a row per decision and a column per state, got "
            f"{array.shape}."
        )
    return array


def check_utility(utility: Any, context: Context | None, states: int) -> FloatArray:
    """Return utilities of shape (T + 1, n), or (T + 1, c, n)."""
    array = as_utility(utility, (2, 3) if context is not None else 2)
    if len(array) < 2 or array.shape[-1] != states or (array.ndim == 3 and array.shape[1] != len(context or ())):
        shape = f"(T + 1, {states})" + (f" or (T + 1, {len(context)}, {states})" if context is not None else "")
        raise ValueError(
            f"utility must have shape {shape}, a row per time 0 … T and a column per state of default, got "
            f"{array.shape}; transpose it or rebuild it for {states} states."
        )
    return array


def check_axes(axes: Any, states: int) -> tuple[Axis, ...]:
    """Refuse axes whose values do not number the states."""
    listed = tuple(axes) if np.iterable(axes) else (axes,)
    for axis in listed:
        if not isinstance(axis, Axis):
            raise ValueError(f"axes must be a list of Axis(name, values), got {axis!r} in it.")
    if listed and int(np.prod([len(axis) for axis in listed])) != states:
        sizes = " x ".join(str(len(axis)) for axis in listed)
        raise ValueError(f"the axes number {sizes} states, but there are {states}; make the two agree.")
    return listed


def check_scale(scale: Any, horizon: int) -> FloatArray:
    """Return the tilts of full actions, (T,), nonnegative."""
    array = as_float_array(scale, "tilt_scale", 1)
    check_shape(array, (horizon,), "tilt_scale", "one number of nats per decision")
    if (array < 0).any():
        raise ValueError("tilt_scale must not be negative; it is the width of a tilt in nats.")
    return array


def check_counts(counts: Any, n: int) -> NDArray[np.int64]:
    """Return observed transitions (n, n)."""
    array = as_float_array(counts, "counts", 2)
    check_shape(array, (n, n), "counts", "one count per transition")
    if (array < 0).any() or (array != np.round(array)).any():
        raise ValueError("counts must be whole numbers of observed transitions, none negative.")
    return array.astype(np.int64)


def check_guess(guess: Any, default: FloatArray) -> FloatArray:
    """Return behaviour that a textbook would suggest."""
    array = check_stochastic(guess, "guess", square=False)
    check_shape(array, default.shape, "guess", "that of default")
    return array


def check_support(support: Any, default: FloatArray) -> NDArray[np.bool_]:
    """Return which decisions are possible by public knowledge."""
    array = np.asarray(support)
    check_shape(array, default.shape, "support", "that of default")
    if array.dtype != bool or not array.any(axis=-1).all():
        raise ValueError(f"support must be True where a decision is possible, in every state; got {array.dtype}.")
    return array


def check_ties(ties: Any, default: FloatArray) -> NDArray[np.int64]:
    """Return the numbers of decisions (n, m), equal for those that are equally likely."""
    array = np.asarray(ties)
    check_shape(array, default.shape[-2:], "ties", "a number for each decision in each state")
    if array.dtype.kind not in "iu" or array.min() < 0:
        raise ValueError(f"ties must be whole numbers from 0 on, equal for decisions as likely; got {array.dtype}.")
    return array.astype(np.int64)


def check_times(times: Any, horizon: int) -> NDArray[np.datetime64]:
    """Return stamps (T + 1,), by default quarter hours from midnight."""
    if times is None:
        return np.datetime64("2018-01-01T00:00", "s") + np.arange(horizon + 1) * np.timedelta64(900, "s")
    stamps = as_times(times, "times")
    if stamps.shape != (horizon + 1,):
        raise ValueError(f"times must have {horizon + 1} stamps, one per row of utility, got shape {stamps.shape}.")
    steps = np.diff(stamps)
    if (steps <= np.timedelta64(0, "s")).any() or (steps != steps[0]).any():
        raise ValueError("times must increase by equal steps; rebuild them with numpy.arange.")
    return stamps


def fill(array: FloatArray, horizon: int, contexts: int) -> FloatArray:
    """Write out (.., r, k) with optional leading axes as (T, c, r, k)."""
    full = array[:, None] if array.ndim == 3 else array
    return np.ascontiguousarray(np.broadcast_to(full, (horizon, contexts, *array.shape[-2:])))


def check_leading(array: FloatArray, name: str, horizon: int, context: Context | None, inner: str) -> None:
    """Refuse leading axes that are neither (), (T,) nor (T or 1, c)."""
    lead = array.shape[:-2]
    if lead in ((), (horizon,)) or (context is not None and lead in ((1, len(context)), (horizon, len(context)))):
        return
    several = f", or (T or 1, {len(context)}, …) for each context" if context is not None else ""
    raise ValueError(
        f"{name} has shape {array.shape} but the horizon is {horizon} steps; give one {inner} matrix or {horizon} of "
        f"them{several}."
    )
