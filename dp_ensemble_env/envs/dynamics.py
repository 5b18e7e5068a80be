r"""One step of the ensemble, for every population, action mode and batch size.

All environments, single or vector, call the ``step_*`` functions in `STEPS` on
arrays with one row (or column) per environment; nothing else computes a step. Plain
models, as in the paper, have a step for each population; all others share that of
`_general`, which says what differs.

A policy row is :math:`\pi[b] \propto P[b]\,e^{\tau}` with the tilt :math:`\tau`, or
the normalised action row itself. With :math:`e = \exp(\tau)`, :math:`g = P e` the
mean field moves without any (n, n) policy:

.. math::

    \rho'[a] = e[a] \sum_b \frac{\rho[b]}{g[b]} P[b,a], \qquad
    \sum_b \rho[b]\,\mathrm{KL}_b = \sum_a \rho'[a]\tau[a] - \sum_b \rho[b]\log g[b] .

The tilt is at most the scale :math:`s_t` times what the basis reaches (`WIDEST`, one in
price and tilt mode). Beyond `SAFE_NATS` its exponentials would
leave the range of doubles, and each row is then shifted by its own maximum
(log-sum-exp).

Layout. ``ints`` and ``common`` hold the problem and ``kernels[m]`` the m-th matrix
with what follows from it, packed flat because each array costs the caller a
tenth of a microsecond (see `tables.pack`). ``counters`` has the rows `TIME`,
`MATRIX`, `STATE` (one load), two words of random stream and `START`, the state in
which all loads began, or -1; ``traces`` holds the optimal return of the episode
and, where they began in several states, the uncontrolled power at times 0 … T;
``occupancy`` counts
loads in a finite population and is a distribution in the mean field. A step
reads ``action`` and fills ``obs`` and ``values`` (reward, utility, discomfort,
power, curtailment). It returns 0, or, having changed nothing, ``1 + index`` of
the first inadmissible entry of the action, or ``-1 - i`` if environment `i` has
to be reset.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from dp_ensemble_env.envs._buildings import buildings_rows, step_buildings
from dp_ensemble_env.envs._general import general_rows, step_general
from dp_ensemble_env.envs._mean_field import mean_field_rows, step_mean_field
from dp_ensemble_env.envs._single import single_rows, step_single

STEPS = {
    "single": step_single,
    "buildings": step_buildings,
    "mean-field": step_mean_field,
    "general": step_general,
}


class Rows(NamedTuple):
    """The step of some environments of a batch, checked before, and how many make another thread worth waking."""

    step: Callable[..., Any]
    worthwhile: int


ROWS = {
    "single": Rows(single_rows, 4096),
    "buildings": Rows(buildings_rows, 128),
    "mean-field": Rows(mean_field_rows, 512),
    "general": Rows(general_rows, 128),
}
