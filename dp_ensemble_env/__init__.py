"""Reinforcement-learning benchmark for privacy-aware demand response.

The names below are loaded when first used, so that ``import dp_ensemble_env`` (which registers the
environments with Gymnasium) stays quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import dp_ensemble_env.envs  # noqa: F401 - registers the environments
from dp_ensemble_env.tools.registry import lazy

__version__ = "1.0.0rc1"

if TYPE_CHECKING:
    from dp_ensemble_env.chain import MarkovChain, ensemble, estimate_chain
    from dp_ensemble_env.chain.baseline import customer_baseline
    from dp_ensemble_env.chain.event import DemandResponseEvent, Tariff
    from dp_ensemble_env.control.cost import cost_of_privacy
    from dp_ensemble_env.control.lsmdp import evaluate_policy, solve
    from dp_ensemble_env.control.policies import average_policy, digamma_policy, standard_policy, taylor_policy
    from dp_ensemble_env.meter import PowerSeries, read_meter
    from dp_ensemble_env.model import EnsembleModel
    from dp_ensemble_env.privacy.mechanisms.dirichlet import DirichletMechanism
    from dp_ensemble_env.privacy.release import Release
    from dp_ensemble_env.scenarios.campus import campus_building, campus_chain, campus_event

__getattr__, __dir__ = lazy(
    __name__,
    {
        "scenarios.campus": ("campus_building", "campus_chain", "campus_event"),
        "control.cost": ("cost_of_privacy",),
        "chain.baseline": ("customer_baseline",),
        "chain.event": ("DemandResponseEvent", "Tariff"),
        "control.lsmdp": ("evaluate_policy", "solve"),
        "chain": ("MarkovChain", "ensemble", "estimate_chain"),
        "meter": ("PowerSeries", "read_meter"),
        "model": ("EnsembleModel",),
        "control.policies": ("average_policy", "digamma_policy", "standard_policy", "taylor_policy"),
        "privacy.release": ("Release",),
        "privacy.mechanisms.dirichlet": ("DirichletMechanism",),
    },
)

__all__ = [
    "DemandResponseEvent", "DirichletMechanism", "EnsembleModel", "MarkovChain", "PowerSeries", "Release", "Tariff",
    "__version__", "average_policy", "campus_building", "campus_chain", "campus_event", "cost_of_privacy",
    "customer_baseline", "digamma_policy", "ensemble", "estimate_chain", "evaluate_policy", "read_meter", "solve",
    "standard_policy", "taylor_policy"
]  # fmt: skip
