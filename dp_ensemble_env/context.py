"""What moves by itself and concerns every load alike: a price regime, the weather, an event that may be called."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.tools.validation import as_float_array, as_start, check_shape, check_stochastic

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Context:
    """A Markov chain that all loads see and nobody controls; all of it is public.

    Parameters
    ----------
    transition : array_like of shape (c, c) or (T, c, c)
        Row-stochastic: ``transition[t, w]`` is the distribution of the context at time
        ``t + 1`` if it is `w` at `t`.
    names : iterable of str, optional
        One for each context, for reports and pictures.
    start : array_like, optional
        Where it begins: a distribution over the contexts, floats of shape (c,), or a
        list of contexts, integers, which are equally likely then. By default all are.
    features : array_like of shape (c, f), optional
        What an observation shows of each context, numbers in [0, 1], no two rows equal.
        By default its one-hot code.

    Examples
    --------
    >>> Context([[0.9, 0.1], [0.5, 0.5]], names=["cheap", "dear"], start=[0])
    Context(cheap, dear)
    """

    transition: FloatArray = field(repr=False)
    names: tuple[str, ...] = ()
    start: Any = field(default=None, repr=False)
    features: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        moves = check_stochastic(self.transition, "transition")
        if moves.ndim not in (2, 3):
            raise ValueError(f"transition must have shape (c, c) or (T, c, c), got {moves.shape}.")
        c = moves.shape[-1]
        names = tuple(str(name) for name in self.names or ()) or tuple(f"context {w}" for w in range(c))
        if isinstance(self.names, str) or len(names) != c or len(set(names)) != c:
            raise ValueError(f"names must be {c} different names, one for each context, got {self.names!r}.")
        shown = np.eye(c) if self.features is None else as_float_array(self.features, "features", 2)
        check_shape(shown, (c, shown.shape[1]), "features", "one row per context")
        if shown.size and (shown.min() < 0 or shown.max() > 1):
            raise ValueError("features must lie in [0, 1], as observations do; rescale them.")
        if len(np.unique(shown.astype(np.float32), axis=0)) < c:
            raise ValueError("two contexts have the same features, so nobody could tell them apart; change one row.")
        values = {"transition": moves, "names": names, "start": as_start(self.start, c, "start"), "features": shown}
        for name, value in values.items():
            if isinstance(value, np.ndarray):
                value = value.copy()
                value.setflags(write=False)
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"Context({', '.join(self.names)})"

    def __len__(self) -> int:
        return len(self.names)

    def distributions(self, horizon: int) -> FloatArray:
        """Return the distribution of the context at times 0 … T, shape (T + 1, c)."""
        rows = [self.start]
        for t in range(horizon):
            rows.append(rows[-1] @ (self.transition if self.transition.ndim == 2 else self.transition[t]))
        return np.array(rows)
