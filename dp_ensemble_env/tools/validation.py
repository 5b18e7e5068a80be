"""Checks of arguments, shared by every module.

Each check raises one ``ValueError`` whose sentence names the argument, the
offending value, row or time, and the remedy.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]

#: Largest accepted difference between the sum of a probability row and one.
ROW_TOLERANCE = 1e-8
#: Below this k a Dirichlet row equals its limit, one certain successor, to all digits, and 1 / k would overflow.
SMALLEST_K = 1e-280
#: Largest discomfort penalty in units of the largest utility. Costs are the penalty times a logarithm near zero, whose
#: rounding errors it multiplies: about this times 1e-16 of the utility is lost in every step.
LARGEST_PENALTY = 1e8
#: Whether who reads the messages typed a command, and no Python.
ON_COMMAND_LINE = ContextVar("on the command line", default=False)


# ------------------------------------------------------------------ arrays
def as_float_array(value: Any, name: str, ndim: int | tuple[int, ...] | None = None) -> FloatArray:
    """Return `value` as a finite float64 array, or say what is wrong with it."""
    array = as_numeric_array(value, name, ndim)
    if not np.isfinite(array).all():
        bad = np.argwhere(~np.isfinite(array))
        where = _index(bad[0])
        raise ValueError(
            f"{name}{where} is {array[tuple(bad[0])]} ({len(bad)} such entries); "
            "remove or fill the values that are not finite numbers first."
        )
    return array


def as_numeric_array(value: Any, name: str, ndim: int | tuple[int, ...] | None = None) -> FloatArray:
    """Return `value` as a float64 array of the wanted dimension (NaN allowed)."""
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "fiub":
            raise TypeError(array.dtype)
        array = np.asarray(array, dtype=np.float64, order="C")
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} must be an array of real numbers, got {_describe(value)}; pass a list or a NumPy array."
        ) from error
    allowed = (ndim,) if isinstance(ndim, int) else ndim
    if allowed is not None and array.ndim not in allowed:
        wanted = " or ".join(f"{d}-D" for d in allowed)
        raise ValueError(f"{name} must be a {wanted} array, got shape {array.shape}; reshape it.")
    return array


def check_shape(array: NDArray[Any], shape: tuple[int, ...], name: str, meaning: str) -> None:
    """Refuse an array that does not have exactly `shape`."""
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape} ({meaning}), got {array.shape}; make the two agree.")


# ------------------------------------------------------------------ numbers, choices, objects
def check_positive(value: Any, name: str, *, allow_inf: bool = False, remedy: str | None = None) -> float:
    """Return `value` as a float greater than zero."""
    number = value if type(value) is float else _as_number(value, name)
    if not number > 0 or (np.isinf(number) and not allow_inf):
        remedy = remedy or f"pass {name} > 0"
        raise ValueError(f"{name} must be a positive{'' if allow_inf else ' finite'} number, got {value!r}; {remedy}.")
    return number


def check_in_range(
    value: Any,
    name: str,
    low: float,
    high: float,
    *,
    open_low: bool = False,
    open_high: bool = False,
    remedy: str | None = None,
) -> float:
    """Return `value` as a float inside the interval from `low` to `high`."""
    number = _as_number(value, name)
    above = number > low if open_low else number >= low
    if not (above and (number < high if open_high else number <= high)):
        left, right = "(" if open_low else "[", ")" if open_high else "]"
        raise ValueError(
            f"{name} must lie in {left}{low:g}, {high:g}{right}, got {value!r}; "
            f"{remedy or 'choose a value inside the interval'}."
        )
    return number


def check_count(value: Any, name: str, minimum: int = 1, maximum: int = 10**9) -> int:
    """Return `value` as an integer from `minimum` to `maximum`."""
    number = _as_number(value, name)
    if not number.is_integer():
        raise ValueError(f"{name} must be a whole number, got {value!r}; pass an int of at least {minimum}.")
    if number < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value!r}; pass a larger whole number.")
    if number > maximum:
        raise ValueError(f"{name} must be at most {maximum:,}, got {value!r}; pass a smaller whole number.")
    return int(number)


def check_choice(value: Any, name: str, choices: Iterable[str]) -> str:
    """Return `value` if it is one of `choices`, else name the closest of them."""
    known = list(choices)
    if isinstance(value, str) and value in known:
        return value
    hint = get_close_matches(value, known, n=1) if isinstance(value, str) else []
    guess = f" (did you mean {hint[0]!r}?)" if hint else ""
    remedy = f"choose one of {', '.join(repr(c) for c in known)}" if known else "there is none"
    raise ValueError(f"unknown {name} {value!r}{guess}; {remedy}.")


def check_instance(value: Any, kind: type, name: str) -> None:
    """Refuse a `value` that is not an instance of `kind`."""
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be an instance of {kind.__name__}, got {_describe(value)}; build one first.")


def check_rng(rng: Any) -> np.random.Generator:
    """Return a NumPy `Generator`, made from an integer seed if need be."""
    if isinstance(rng, np.random.Generator):
        return rng
    if isinstance(rng, (int, np.integer)) and not isinstance(rng, bool) and rng >= 0:
        return np.random.default_rng(int(rng))
    raise ValueError(
        f"rng must be a numpy.random.Generator or a non-negative integer seed, got {_describe(rng)}; "
        "pass numpy.random.default_rng(seed)."
    )


# ------------------------------------------------------------------ probabilities
def check_stochastic(matrix: ArrayLike, name: str = "default", *, square: bool = True) -> FloatArray:
    """Return a row-stochastic (…, n, n) array, or (…, n, m) unless `square`, naming the row that is not one.

    Rows within `ROW_TOLERANCE` of one are accepted as they are: nothing is rescaled behind the caller's back.
    """
    array = as_float_array(matrix, name)
    if not square and (array.ndim < 2 or 0 in array.shape):
        raise ValueError(f"{name} must be a matrix of probabilities whose rows sum to one, got shape {array.shape}.")
    if square and (array.ndim < 2 or array.shape[-1] != array.shape[-2] or array.shape[-1] == 0):
        raise ValueError(
            f"{name} must be a square matrix of transition probabilities (n, n), or (T, n, n) when it changes "
            f"with time, got shape {array.shape}; entry [b, a] is the probability of going from b to a."
        )
    negative = np.argwhere(array < 0)
    if len(negative):
        raise ValueError(
            f"{name}{_index(negative[0])} is {array[tuple(negative[0])]:g}, but a probability cannot be negative; "
            f"correct row {negative[0][-2]}."
        )
    sums = array.sum(axis=-1)
    wrong = np.argwhere(np.abs(sums - 1.0) > ROW_TOLERANCE)
    if len(wrong):
        total = float(sums[tuple(wrong[0])])
        columns = array.shape[-1] == array.shape[-2] and np.abs(array.sum(axis=-2) - 1.0).max() <= ROW_TOLERANCE
        remedy = (
            "its columns do, so pass its transpose (rows are the present state here)"
            if columns
            else "divide the row by its sum, or give it observations if it was never left"
        )
        raise ValueError(
            f"row {wrong[0][-1]} of {name}{_index(wrong[0][:-1])} sums to {total:.9g} instead of 1 "
            f"({len(wrong)} such rows); {remedy}."
        )
    return array


def as_start(value: Any, n: int, name: str = "initial") -> FloatArray:
    """Return a distribution over `n` states, given as such (floats), as a list of states (integers) or None (all)."""
    if value is None:
        return np.full(n, 1.0 / n)
    array = np.asarray(value)
    if array.dtype.kind in "iu" and array.ndim == 1 and array.size:
        if array.min() < 0 or array.max() >= n:
            raise ValueError(f"{name} names the start states {array.tolist()}, but the states are 0 … {n - 1}.")
        chosen = np.unique(array)
        return np.bincount(chosen, minlength=n) / len(chosen)
    weights = as_numeric_array(value, name)
    if weights.shape != (n,):
        raise ValueError(
            f"{name} must be a distribution over the {n} states (floats) or a list of start states (integers), "
            f"got shape {weights.shape}."
        )
    if not np.isfinite(weights).all() or (weights < 0).any() or abs(weights.sum() - 1.0) > 1e-8:
        raise ValueError(
            f"{name} must be a distribution (nonnegative, sum one), got sum {weights.sum():g} and minimum "
            f"{weights.min():g}; divide it by its sum."
        )
    return weights


def state_list(states: Sequence[int] | NDArray[Any]) -> str:
    """Write a list of states, shortened when it is long."""
    shown = ", ".join(str(int(s)) for s in list(states)[:8])
    return shown if len(states) <= 8 else f"{shown}, … ({len(states)} in all)"


# ------------------------------------------------------------------ control problems
def check_concentration(k: Any, *, allow_inf: bool = False) -> float:
    """Return the concentration `k` of Dirichlet rows: positive, and not smaller than makes a difference."""
    return max(check_positive(k, "k", allow_inf=allow_inf), SMALLEST_K)


def as_utility(utility: Any, ndim: int | tuple[int, ...]) -> FloatArray:
    """Return utilities as a finite array; if one is -inf, say how to forbid a state."""
    array = as_numeric_array(utility, "utility", ndim)
    forbidden = np.argwhere(np.isneginf(array))
    if len(forbidden):
        entries = f"{len(forbidden)} such entr{'y' if len(forbidden) == 1 else 'ies'}"
        raise ValueError(
            f"utility{_index(forbidden[0])} is -inf ({entries}), but utilities are finite dollars; to forbid a "
            "state, give it a utility of minus a hundred penalties, and loads avoid it at any discomfort; if they "
            "never go there by themselves, make it impossible in default."
        )
    return as_float_array(array, "utility", ndim)


def check_penalty_scale(utility: FloatArray, penalty: float) -> None:
    """Refuse a penalty so much larger than every utility that nothing would be left of them."""
    largest = max(float(utility.max(initial=0.0)), -float(utility.min(initial=0.0)))
    if 0.0 < LARGEST_PENALTY * largest < penalty:
        raise ValueError(
            f"discomfort_penalty is {penalty:g}, {penalty / largest:.1g} times the largest utility ({largest:g}): the "
            f"costs would be lost in rounding; use at most {LARGEST_PENALTY:g} times, where loads hardly move already, "
            "or check the units."
        )


# ------------------------------------------------------------------ time
def as_times(value: Any, name: str) -> NDArray[np.datetime64]:
    """Return `value` as a 1-D array of datetime64[s] without missing stamps."""
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        array = np.asarray(value)
        if array.dtype.kind not in "MUO":
            raise TypeError
        stamps = array.astype("datetime64[s]")
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"{name} must be a list of stamps such as 2018-07-02T11:00 or a datetime64 array, got {_describe(value)}."
        ) from error
    if stamps.ndim != 1 or np.isnat(stamps).any():
        raise ValueError(f"{name} must be a flat list of stamps, none missing, got shape {stamps.shape}.")
    return stamps


def as_days(value: Any, name: str) -> tuple[str, ...]:
    """Return `value` as a tuple of ISO dates."""
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        return tuple(str(np.datetime64(day, "D")) for day in value)
    except (TypeError, ValueError, OverflowError) as error:
        remedy = "correct it" if isinstance(value, (list, tuple)) else "put a single day in a list, too"
        raise ValueError(
            f"{name} must be a list of days, written as 2018-07-02, got {_describe(value)}; {remedy}."
        ) from error


def clock(instant: Any) -> str:
    """Write an instant like 2018-07-02 11:00, with seconds only if there are any."""
    text = str(np.datetime64(instant, "s")).replace("T", " ")
    return text[:-3] if text.endswith(":00") else text


def minutes(span: Any) -> str:
    """Write a time span in minutes, like 15 min."""
    return f"{np.timedelta64(span, 's').astype(np.int64) / 60:g} min"


# ------------------------------------------------------------------ wording
def option(name: str, *values: Any) -> str:
    """Write an argument as its user types it: ``stamp='end'``, or on the command line ``--stamp end``.

    Several values are alternatives; without one the argument is only named. A flag has the value True.
    """
    if not ON_COMMAND_LINE.get():
        return " or ".join(f"{name}={value!r}" for value in values) or f"{name}="
    flag = f"--{name.replace('_', '-')}"
    typed = (value if isinstance(value, tuple) else (value,) for value in values)
    return " or ".join(flag if one == (True,) else f"{flag} {shlex.join(map(str, one))}" for one in typed) or flag


def _as_number(value: Any, name: str) -> float:
    try:
        if isinstance(value, (str, bytes, bool)) or value is None:
            raise TypeError
        number = float(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a number, got {_describe(value)}; pass an int or a float.") from error
    if np.isnan(number):
        raise ValueError(f"{name} must be a number, got NaN; check how it was computed.")
    return number


def _index(index: Any) -> str:
    return "[" + ", ".join(str(int(i)) for i in index) + "]" if len(index) else ""


def _describe(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"
