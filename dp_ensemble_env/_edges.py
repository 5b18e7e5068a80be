"""Numbers at the edge of what double precision can tell apart: what is computed all the same, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env._validation import as_float_array, as_numeric_array, check_positive

FloatArray = NDArray[np.float64]

#: Below this k a Dirichlet row has its limit, one certain successor, to all digits, and 1 / k would overflow.
SMALLEST_K = 1e-280
#: Largest discomfort penalty in units of the largest utility. Costs are the penalty times a logarithm near zero, whose
#: rounding errors it multiplies: about this times 1e-16 of the utility is lost in every step.
LARGEST_PENALTY = 1e8


def check_concentration(k: Any, *, allow_inf: bool = False) -> float:
    """Return the concentration `k` of Dirichlet rows: positive, and not smaller than makes a difference."""
    return max(check_positive(k, "k", allow_inf=allow_inf), SMALLEST_K)


def as_utility(utility: Any, ndim: int | tuple[int, ...]) -> FloatArray:
    """Return utilities as a finite array; say how a state is forbidden, if that is what an infinite one is for."""
    array = as_numeric_array(utility, "utility", ndim)
    forbidden = np.argwhere(np.isneginf(array))
    if len(forbidden):
        where, number = ", ".join(str(int(i)) for i in forbidden[0]), len(forbidden)
        entries = f"{number} such entr{'y' if number == 1 else 'ies'}"
        raise ValueError(
            f"utility[{where}] is -inf ({entries}), but utilities are finite dollars; to forbid a "
            "state, give it a utility of minus a hundred penalties, and loads avoid it at whatever discomfort; if they "
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
