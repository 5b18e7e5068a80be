r"""No data at all: a public guess of the default behaviour, ε = 0.

Where a model brings a guess of its own (`EnsembleModel.guess`, textbook behaviour), that is the guess. Otherwise
it is a lazy walk: a load stays at its level with weight `stay`, and moves by :math:`d` levels with weight
:math:`decay^{|d|}` up to `reach` levels away; each row is normalised. It knows the number of levels and nothing else,
so it is what every private controller has to beat. Where a state has another number of decisions than there are states,
all decisions are equally likely. The guess is the same at every time and in every context.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dp_ensemble_env.chain.markov import lazy_walk
from dp_ensemble_env.privacy.accounting.losses import Losses
from dp_ensemble_env.privacy.mechanisms.base import Event, Mechanism, Permit, Seeding
from dp_ensemble_env.privacy.release import Release
from dp_ensemble_env.tools.validation import check_count, check_in_range, check_shape, check_stochastic

LAZY_WALK = "lazy walk"  #: What an event calls the guess where none is given.


def name_of(guess: ArrayLike | None) -> str:
    """Name the guess in an event, so that draws around different guesses differ and share no stream."""
    numbers = b"" if guess is None else np.ascontiguousarray(guess, dtype="<f8").tobytes()
    return LAZY_WALK if guess is None else hashlib.sha256(numbers).hexdigest()


def public_guess(model: Any) -> Release:
    """Return the guess for a model: its own if it has one, else the lazy walk."""
    return PublicMechanism().release(model.default, **PublicMechanism().terms_of(model))


@dataclass(frozen=True, kw_only=True)
class PublicEvent(Event, type="public"):
    """A guess made without data; it costs nothing."""

    random: ClassVar[bool] = False
    stay: float
    decay: float
    reach: int
    shape: tuple[int, ...]
    guess: str = LAZY_WALK

    def losses(self) -> Losses:
        """Return nothing: no data are used."""
        return Losses()

    @property
    def headline(self) -> str:
        """The settings in a few words."""
        walk = f"stay={self.stay:g}, decay={self.decay:g}, reach={self.reach}"
        return walk if self.guess == LAZY_WALK else "the model's own guess"


@dataclass(frozen=True)
class PublicMechanism(Mechanism):
    """Release a lazy walk, or the model's own guess, without using the data.

    `stay` is the weight of staying at a level; the weight falls by the factor `decay` with every level of distance.
    `reach` is the longest move in one step.

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

    def terms_of(self, model: Any) -> dict[str, Any]:
        """Return the model's own guess, if it has one."""
        guess = getattr(model, "guess", None)
        return {} if guess is None else {"guess": guess}

    def event(self, data: Any, *, seeding: Seeding = "os-entropy", guess: ArrayLike | None = None) -> PublicEvent:
        """Describe the guess, which depends only on the shape of the data; nothing is random."""
        shape, name = np.shape(data), name_of(guess)
        return PublicEvent(stay=self.stay, decay=self.decay, reach=int(self.reach), shape=shape, guess=name)

    def draw(self, data: Any, permit: Permit, *, guess: ArrayLike | None = None) -> Release:
        """Return the given guess, or the lazy walk for the number of levels in the data."""
        (*lead, n, m), event = np.shape(data), self.event(data, guess=guess)
        permit.covers(event)
        if guess is None:
            walk = lazy_walk(n, self.stay, self.decay, self.reach) if n == m else np.full((n, m), 1.0 / m)
            guess = np.broadcast_to(walk, (*lead, n, m))
        matrix = check_stochastic(guess, "guess", square=False)
        check_shape(matrix, event.shape, "guess", "the shape of the data")
        with np.errstate(divide="ignore"):
            return Release(np.minimum(np.log(matrix), 0.0), permit.event)
