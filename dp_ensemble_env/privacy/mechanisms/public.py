r"""No data at all: a public guess of the default behaviour, ε = 0.

The guess is a lazy walk: a load stays at its level with weight `stay`, and moves by
:math:`d` levels with weight :math:`decay^{|d|}` up to `reach` levels away; each row is
normalised. It knows the number of levels and nothing else, so it is what every private
controller has to beat.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dp_ensemble_env._validation import check_count, check_in_range
from dp_ensemble_env.privacy.mechanisms.base import Event, Mechanism, Permit, Release, Seeding


@dataclass(frozen=True, kw_only=True)
class PublicEvent(Event, type="public"):
    """A guess made without data; it costs nothing."""

    random: ClassVar[bool] = False
    stay: float
    decay: float
    reach: int
    shape: tuple[int, ...]

    @property
    def headline(self) -> str:
        """The settings in a few words."""
        return f"stay={self.stay:g}, decay={self.decay:g}, reach={self.reach}"


@dataclass(frozen=True)
class PublicMechanism(Mechanism):
    """Guess a lazy walk, whatever the data are.

    Parameters
    ----------
    stay : float
        Weight of staying at a level.
    decay : float
        Factor by which the weight falls with every level of distance.
    reach : int
        The farthest that a load moves in one step.

    Examples
    --------
    >>> import numpy as np
    >>> print(PublicMechanism().release(np.eye(3)).matrix.round(3))
    [[0.606 0.303 0.091]
     [0.25  0.5   0.25 ]
     [0.091 0.303 0.606]]
    """

    name: ClassVar[str] = "public"
    stay: float = 0.6
    decay: float = 0.3
    reach: int = 5

    def __post_init__(self) -> None:
        check_in_range(self.stay, "stay", 0, 1, open_low=True)
        check_in_range(self.decay, "decay", 0, 1, open_high=True)
        check_count(self.reach, "reach", 0)

    def event(self, data: Any, *, seeding: Seeding = "os-entropy", **terms: Any) -> PublicEvent:
        """Describe the guess; only the shape of the data is looked at. Nothing is random, so nothing is seeded."""
        return PublicEvent(stay=self.stay, decay=self.decay, reach=int(self.reach), shape=np.shape(data))

    def draw(self, data: Any, permit: Permit, **terms: Any) -> Release:
        """Return the guess for as many levels as the data have."""
        shape = np.shape(data)
        permit.covers(self.event(data))
        distance = np.abs(np.subtract.outer(np.arange(shape[-1]), np.arange(shape[-1])))
        weights = np.where(distance == 0, self.stay, np.where(distance <= self.reach, self.decay**distance, 0.0))
        with np.errstate(divide="ignore"):
            log_matrix = np.log(weights / weights.sum(axis=1, keepdims=True))
        return Release(np.broadcast_to(log_matrix, shape), permit.event)
