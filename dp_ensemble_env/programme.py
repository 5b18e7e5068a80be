r"""What a relief programme pays: for capacity that is pledged, and for energy that is delivered.

The rules follow Consolidated Edison's commercial programmes. A participant pledges :math:`p` kW. In an event of
:math:`h` hours it delivers :math:`D` kW on average, measured from the customer baseline. Its *performance factor* is
:math:`f = \min(\max(D / p, 0), 1)`, and a month with one event pays

.. math:: \text{reservation} \cdot p \cdot f + \text{energy} \cdot \max(D, 0)\,h

The published rates of the Commercial System Relief Program in Manhattan are $18 per kW-month and $1 per kWh, with 21
hours of notice. Those of the Distribution Load Relief Program (two hours of notice) differ by network: its
reservation here is an assumption, to be replaced by that of your network.

**The pledge.** The rules above do not punish a promise that is not kept, so that the largest would seem the best. A
shortfall is therefore charged in the choice of the pledge: :math:`c` dollars per kW-month missing, by default the
reservation itself. Expected revenue is then greatest at the quantile reservation / (reservation + c) of what will be
delivered, the median by default.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_ensemble_env.tools.validation import as_float_array, check_in_range

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class ReliefProgramme:
    """The terms of a programme.

    Attributes
    ----------
    name : str
    reservation : float
        Dollars per kW-month pledged.
    energy : float
        Dollars per kWh delivered.
    notice_hours : float
    shortfall : float, optional
        Dollars per kW-month missing, in the choice of the pledge only; by default the reservation.
    """

    name: str = "CSRP"
    reservation: float = 18.0
    energy: float = 1.0
    notice_hours: float = 21.0
    shortfall: float | None = None

    def __post_init__(self) -> None:
        for field in ("reservation", "energy", "notice_hours"):
            check_in_range(getattr(self, field), field, 0, np.inf)
        if self.shortfall is not None:
            check_in_range(self.shortfall, "shortfall", 0, np.inf)

    def performance_factor(self, delivered_kw: ArrayLike, pledge_kw: float) -> FloatArray:
        """Return the share of the pledge that was delivered, from 0 to 1; 1 without a pledge.

        Examples
        --------
        >>> ReliefProgramme().performance_factor([50.0, 250.0, -10.0], 100.0)
        array([0.5, 1. , 0. ])
        """
        delivered = np.asarray(delivered_kw, dtype=float)
        if pledge_kw <= 0:
            return np.ones_like(delivered)
        return np.clip(delivered / pledge_kw, 0.0, 1.0)

    def payment(self, delivered_kw: ArrayLike, pledge_kw: float, hours: float) -> FloatArray:
        """Return the dollars of a month with one event of so many hours.

        Examples
        --------
        >>> float(ReliefProgramme().payment(80.0, 100.0, 4.0))  # 18 * 80 + 1 * 80 * 4
        1760.0
        """
        delivered = np.asarray(delivered_kw, dtype=float)
        reserved = self.reservation * pledge_kw * self.performance_factor(delivered, pledge_kw)
        paid: FloatArray = reserved + self.energy * np.maximum(delivered, 0.0) * hours
        return paid

    def best_pledge(self, delivered_kw: ArrayLike) -> float:
        """Return the pledge of the largest expected revenue, charged for a shortfall, over equally likely deliveries.

        Expected revenue is concave and piecewise linear in the pledge with corners at the deliveries, so one of
        them, or none at all, is best.
        """
        draws = np.maximum(np.sort(as_float_array(delivered_kw, "delivered_kw", 1)), 0.0)
        cost = self.reservation if self.shortfall is None else self.shortfall
        if not len(draws) or self.reservation + cost == 0:
            return 0.0
        # Raising the pledge over draw i gains on the draws above it and costs on those below.
        above = 1.0 - np.arange(1, len(draws) + 1) / len(draws)
        slope = self.reservation * above - cost * (1.0 - above)
        return float(draws[int(np.argmax(slope <= 0.0))])


#: By name on the command line.
PROGRAMMES = {
    "csrp": ReliefProgramme(),
    "dlrp": ReliefProgramme("DLRP", notice_hours=2.0),
}
