r"""What simple controllers score in a scenario: whether it needs feedback, data, foresight.

A score is 0 for the uncontrolled loads and 100 for the optimum. A good benchmark leaves room between these probes
and 100:

open loop
    The best sequence of tilts that looks at the clock and never at the context, found by exact gradients. It is 100
    without a context. What it leaves is worth feedback.
public guess
    The plan made on the best lazy walk out of a grid *in hindsight*, or on the scenario's own textbook behaviour,
    deployed as a tilt. What it leaves is worth data.
constant action, random search
    The best single action of each mode, held throughout; the best of 100 random sequences. What they leave is worth a
    learner.
myopic
    A tilt by the next utility alone. What it leaves is worth foresight.

All are computed exactly in the mean field, on the true behaviour.
"""

from __future__ import annotations

import datetime
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dp_ensemble_env import __version__, scenarios
from dp_ensemble_env.experiments._prober import Prober
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.reporting.tables import plain
from dp_ensemble_env.tools.console import Monitor
from dp_ensemble_env.tools.files import atomic_write


@dataclass(frozen=True)
class Probes:
    """Scores of simple controllers, 0 = uncontrolled, 100 = optimum, in the mean field.

    Attributes
    ----------
    open_loop : float
        Best tilts by time alone.
    public_guess : float
        The better of `lazy_walk` and `textbook`, planned without data.
    lazy_walk, textbook : float
        The best lazy walk in hindsight, and the scenario's textbook behaviour (NaN if it has none).
    constant_tilt, constant_price, constant_discrete, constant_policy : float
        Best single action of the mode, held throughout.
    price_ceiling, price_bound : float
        Best prices by time and context that were found (a mean field that also looks at where the loads are may gain
        a point more), and what no price in the box exceeds: each load priced by its own state, exact for one load.
    discrete_ceiling, discrete_bound : float
        The same with the prices of the discrete mode.
    tilt_ceiling : float
        The optimum clipped to the box of tilt mode: 100 where the box is wide enough.
    myopic : float
        Tilt by the next utility alone.
    random_search : float
        Best of 100 random open-loop sequences of actions, in tilt or in price mode.
    uncontrolled, optimum : float
        What 0 and 100 stand for, in dollars per load.
    how : dict
        In words, how each was found.
    """

    open_loop: float
    public_guess: float
    lazy_walk: float
    textbook: float
    constant_tilt: float
    constant_price: float
    constant_discrete: float
    constant_policy: float
    price_ceiling: float
    price_bound: float
    discrete_ceiling: float
    discrete_bound: float
    tilt_ceiling: float
    myopic: float
    random_search: float
    uncontrolled: float
    optimum: float
    how: dict[str, str] = field(default_factory=dict, compare=False)

    @property
    def constant(self) -> float:
        """Best constant action of any mode."""
        return max(self.constant_tilt, self.constant_price, self.constant_discrete, self.constant_policy)

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and words; None for what does not apply."""
        return {name: plain(value) for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Probes:
        """Read what `to_dict` wrote."""
        read: dict[str, Any] = {name: np.nan if value is None else value for name, value in content.items()}
        return cls(**read)


def probe(model: EnsembleModel, *, effort: float = 1.0, monitor: Monitor | None = None) -> Probes:
    """Compute all probes of a model.

    Parameters
    ----------
    model : EnsembleModel
    effort : float
        Multiplies the iterations of the searches; 1 suffices for the built-in scenarios.
    monitor : Monitor, optional
        Hears how far the work is.

    Examples
    --------
    >>> round(probe(scenarios.make("campus-event"), effort=0.1).open_loop)
    100
    """
    prober = Prober(model, effort=effort, monitor=monitor)
    return Probes(**prober.scores(), how=prober.how)


def record(found: dict[str, list[Probes]], path: Path = scenarios.RECORD) -> None:
    """Write probes of the training instances 0, 1, … of scenarios to the file that cards are read from.

    What is there of other scenarios stays.
    """
    content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for name, instances in found.items():
        content[name] = {
            "version": scenarios.card(name).version,
            "package": __version__,
            "date": datetime.date.today().isoformat(),
            "split": "train",
            "instances": [_rounded(probes.to_dict()) for probes in instances],
        }
    with atomic_write(path) as stream:
        json.dump(dict(sorted(content.items())), stream, indent=1, ensure_ascii=False)
        stream.write("\n")


def recorded(name: str) -> list[Probes]:
    """Return the recorded probes of a scenario, those of its training instances 0, 1, …; empty if there are none."""
    content = scenarios.card(name).probes
    return [] if content is None else [Probes.from_dict(instance) for instance in content["instances"]]


def _rounded(content: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in content.items()}
