"""A random state common to all loads: a price regime, the weather, an event that may be called."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.shapes import freeze
from dp_ensemble_env.tools.validation import as_float_array, as_start, check_shape, check_stochastic

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Context:
    """A public Markov chain that affects all loads and that nobody controls.

    Examples
    --------
    >>> Context([[0.9, 0.1], [0.5, 0.5]], names=["cheap", "expensive"], start=[0])
    Context(cheap, expensive)
    """

    transition: FloatArray = field(repr=False)
    """(c, c) or (T, c, c): ``transition[t, w]`` is the distribution of the context at ``t + 1`` if it is `w` at `t`."""
    names: tuple[str, ...] = ()
    """One for each context, for reports and pictures."""
    start: Any = field(default=None, repr=False)
    """A distribution (c,), floats, or a list of contexts, integers, which are equally likely then; by default all."""
    features: Any = field(default=None, repr=False)
    """What an observation shows of each context, (c, f), numbers in [0, 1]; by default its one-hot code.

    Equal rows hide which of several contexts holds; an agent with memory must still be able to tell (`check`).
    """
    signs: tuple[str, ...] = field(default=(), repr=False)
    """A name for each different row of features, in the order in which they first appear, for infos and pictures.

    By default the names, if all contexts are shown, or numbers.
    """

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
        freeze(self, transition=moves, names=names, start=as_start(self.start, c, "start"), features=shown)
        groups = int(self.shown.max()) + 1
        signs = tuple(str(sign) for sign in self.signs or ())
        if isinstance(self.signs, str) or (signs and len(set(signs)) != groups) or len(signs) > groups:
            raise ValueError(
                f"signs must be {groups} different names, one for each row of features, got {self.signs!r}."
            )
        freeze(self, signs=signs or (names if groups == c else tuple(f"sign {group}" for group in range(groups))))

    def __repr__(self) -> str:
        return f"Context({', '.join(self.names)})"

    def __len__(self) -> int:
        return len(self.names)

    def moves(self, t: int) -> FloatArray:
        """Return the transition matrix (c, c) of step `t`."""
        return np.asarray(self.transition if self.transition.ndim == 2 else self.transition[t])

    def distributions(self, horizon: int) -> FloatArray:
        """Return the distribution of the context at times 0 … T, shape (T + 1, c)."""
        rows = [self.start]
        for t in range(horizon):
            rows.append(rows[-1] @ self.moves(t))
        return np.array(rows)

    # ------------------------------------------------------------ contexts that are shown in part
    @cached_property
    def shown(self) -> IntArray:
        """Group of each context, (c,): contexts of one group look the same in an observation."""
        _, first, group = np.unique(self.features.astype(np.float32), axis=0, return_index=True, return_inverse=True)
        return np.asarray(np.argsort(np.argsort(first))[group.ravel()])

    @property
    def is_shown(self) -> bool:
        """Whether observations show every context."""
        return int(self.shown.max()) + 1 == len(self)

    @property
    def words(self) -> str:
        """The visible names of the contexts, in words."""
        signs = ", ".join(self.signs)
        return signs if self.is_shown else f"{len(self)}, of which observations show {signs}"

    def chances(self, t: int, w: int) -> FloatArray:
        """Return the chance of each context (c,) at time `t`, given what is shown of context `w`."""
        itself: FloatArray = np.eye(len(self))[w]
        if self.is_shown:
            return itself
        weights: FloatArray = np.where(self.shown == self.shown[w], self.distributions(t)[-1], 0.0)
        return weights / weights.sum() if weights.sum() > 0 else itself

    def as_shown(self, table: FloatArray) -> FloatArray:
        """Average a table (times, c, …) over the contexts that look the same, weighted by their chances at that time.

        The result reveals no more about the context than its features do.
        """
        if self.is_shown:
            return table
        chance = self.distributions(len(table) - 1)
        alike = self.shown[:, None] == self.shown  # (c, c)
        weights = np.where(alike, chance[:, None, :], 0.0)
        weights = np.where(weights.sum(axis=-1, keepdims=True) > 0, weights, np.eye(len(self)))  # cannot be reached
        return np.asarray(np.einsum("twv,tv...->tw...", weights / weights.sum(axis=-1, keepdims=True), table))

    def check(self, horizon: int) -> None:
        """Refuse a context of another horizon, or one that an agent with memory cannot always identify.

        It can if all possible first contexts look different, and so do all possible successors of any reachable
        context. Then agents that see only the features can reach the same optimum as agents that see the context.
        """
        if self.transition.ndim == 3 and len(self.transition) != horizon:
            raise ValueError(
                f"the context's transition is given for {len(self.transition)} steps but the horizon is {horizon}; "
                "give one matrix, or one for each step."
            )
        if self.is_shown:
            return
        self._refuse_twins(np.flatnonzero(self.start > 0), "at the start")
        reached = self.start > 0
        for t in range(horizon):
            moves = self.moves(t) > 0
            for w in np.flatnonzero(reached):
                self._refuse_twins(np.flatnonzero(moves[w]), f"at time {t + 1}, after {self.names[w]!r},")
            reached = moves[reached].any(axis=0)

    def _refuse_twins(self, contexts: IntArray, when: str) -> None:
        groups, first = np.unique(self.shown[contexts], return_index=True)
        if len(groups) < len(contexts):
            second = next(i for i in range(len(contexts)) if i not in first)
            twin = contexts[first[np.searchsorted(groups, self.shown[contexts[second]])]]
            raise ValueError(
                f"{when} the contexts {self.names[twin]!r} and {self.names[contexts[second]]!r} are both possible and "
                "have the same features, so no agent could tell them apart; change one of the two rows of features."
            )

    def follow(self, t: IntArray | int, before: IntArray, group: IntArray) -> IntArray:
        """Return the context at time `t` of each episode, from the context before it and the group shown now.

        At `t` = 0, `before` is ignored, because the features identify the start. The context must be decodable.
        """
        t, before, group = np.broadcast_arrays(t, before, group)
        after = np.empty(t.shape, dtype=np.int64)
        for i in np.ndindex(t.shape):
            likely = self.start if t[i] == 0 else self.moves(int(t[i]) - 1)[before[i]]
            after[i] = np.argmax(np.where(self.shown == group[i], likely, -1.0))
        return after

    def remembering(self, follow: Any, first: int = 0) -> Context:
        """Return the chain with a memory of the signs shown: its state `h` becomes ``follow[h, sign]`` with each sign.

        `follow` has shape (H, number of signs), and `first` is the state before the first sign. Observations show the
        memory too, so the best memoryless agent here equals the best agent with that memory in the original chain. The
        optimum is unchanged.
        """
        table = np.asarray(follow)
        count, c = len(table), len(self)
        onto = np.eye(count)[table[:, self.shown]]  # [h, v, k]: with the context v the memory h becomes k
        moves = np.einsum("...wv,hvk->...hwkv", self.transition, onto)
        start = np.einsum("v,vk->kv", self.start, onto[first])
        shown = np.concatenate([np.repeat(np.eye(count), c, axis=0), np.tile(self.features, (count, 1))], axis=1)
        names = tuple(f"{name}, memory {h}" for h in range(count) for name in self.names)
        return Context(moves.reshape(*moves.shape[:-4], count * c, count * c), names, start.ravel(), shown)

    # ------------------------------------------------------------ trees
    def branching(self, horizon: int) -> tuple[int, int] | None:
        """Return the first (time, context) that can be reached in two ways, None if time and context tell the past."""
        reached = self.start > 0
        for t in range(horizon):
            ways = (self.moves(t)[reached] > 0).sum(axis=0)
            if (ways > 1).any():
                return t + 1, int(np.argmax(ways > 1))
            reached = ways > 0
        return None
