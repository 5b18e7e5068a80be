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

Layout. ``ints`` and ``common`` hold the problem and ``kernels[m]`` the m-th matrix with what
follows from it, packed flat because each array costs the caller a tenth of a microsecond (see
`tables.pack`). ``counters`` has the rows `TIME`, `MATRIX`, `STATE` (one load), two words of random
stream, `START`, the state in which all loads began, or -1, and `PAST`, the state before this one
(and the former start, if an episode has just begun); ``traces`` holds the optimal return of the
episode and, where they began in several states, the uncontrolled power at times 0 … T;
``occupancy`` counts loads in a finite population and is a distribution in the mean field. A step
reads ``action`` and fills ``obs`` and ``values`` (reward, utility, discomfort, power, curtailment),
for the environments from ``start`` to ``stop``, which have been checked, or, where both are 0, for
all of them, and checks them first (one load: `_single` says when). It returns 0, or, having changed
nothing, ``1 + index`` of the first inadmissible entry of the action, or ``-1 - i`` if environment
`i` has to be reset.
"""

from __future__ import annotations

from dp_ensemble_env.envs._buildings import step_buildings
from dp_ensemble_env.envs._general import step_general
from dp_ensemble_env.envs._mean_field import step_mean_field
from dp_ensemble_env.envs._single import step_single

STEPS = {
    "single": step_single,
    "buildings": step_buildings,
    "mean-field": step_mean_field,
    "general": step_general,
}
#: How many environments make a piece of work for a thread: some ten microseconds.
PIECE = {"single": 128, "buildings": 32, "mean-field": 64, "general": 32}
