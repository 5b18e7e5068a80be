"""Privacy: mechanisms, what they guarantee, what was spent, and an attacker to check it.

Names are imported when first used, so that importing the package stays cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dp_ensemble_env.privacy.accounting.composition import (
        RowGroup,
        UnreachableTarget,
        calibrate_groups,
        calibrate_k,
        composed_delta,
        composed_epsilon,
        largest_k,
        renyi_epsilon,
        vanishing_k_composed,
    )
    from dp_ensemble_env.privacy.accounting.divergence import (
        adjacent_row,
        pair_delta,
        pair_epsilon,
        renyi_divergence,
        renyi_limit,
        vanishing_k_delta,
        vanishing_k_epsilon,
        worst_case_delta,
        worst_case_epsilon,
    )
    from dp_ensemble_env.privacy.accounting.losses import Loss, NoBound, PureLoss, RowLoss, losses, total_epsilon
    from dp_ensemble_env.privacy.accounting.theorem2 import theorem2_epsilon
    from dp_ensemble_env.privacy.audit import (
        AuditResult,
        audit_average,
        audit_epsilon,
        audit_function,
        audit_samples,
        epsilon_lower_bound,
    )
    from dp_ensemble_env.privacy.calibration import gaussian_delta, gaussian_epsilon, gaussian_sigma
    from dp_ensemble_env.privacy.fleet import Fleet
    from dp_ensemble_env.privacy.guarantee import Guarantee, release_guarantee
    from dp_ensemble_env.privacy.ledger import PrivacyBudgetExceeded, PrivacyLedger, require_guarantee
    from dp_ensemble_env.privacy.mechanisms import Event, Mechanism, Permit, Release, mechanism
    from dp_ensemble_env.privacy.mechanisms.dirichlet import DirichletEvent, DirichletMechanism
    from dp_ensemble_env.privacy.mechanisms.dirichlet import DirichletEvent as Charge
    from dp_ensemble_env.privacy.mechanisms.dirichlet import DirichletEvent as ReleasePlan
    from dp_ensemble_env.privacy.mechanisms.gaussian import GaussianMechanism
    from dp_ensemble_env.privacy.mechanisms.laplace import LaplaceMechanism
    from dp_ensemble_env.privacy.mechanisms.posterior import PosteriorMechanism
    from dp_ensemble_env.privacy.mechanisms.public import PublicMechanism
    from dp_ensemble_env.privacy.participants import Adjacency, DeviceChain, adjacency_from_counts, chain_from_devices
    from dp_ensemble_env.privacy.statement import (
        FloorlessReport,
        Setting,
        floorless_report,
        privacy_cost,
        reach_statement,
        reachable_settings,
    )

_MODULES = {
    "accounting.composition": (
        "RowGroup",
        "UnreachableTarget",
        "calibrate_groups",
        "calibrate_k",
        "composed_delta",
        "composed_epsilon",
        "largest_k",
        "renyi_epsilon",
        "vanishing_k_composed",
    ),
    "accounting.divergence": (
        "adjacent_row",
        "pair_delta",
        "pair_epsilon",
        "renyi_divergence",
        "renyi_limit",
        "vanishing_k_delta",
        "vanishing_k_epsilon",
        "worst_case_delta",
        "worst_case_epsilon",
    ),
    "accounting.losses": (
        "Loss",
        "NoBound",
        "PureLoss",
        "RowLoss",
        "losses",
        "total_epsilon",
    ),
    "accounting.theorem2": ("theorem2_epsilon",),
    "audit": (
        "AuditResult",
        "audit_average",
        "audit_epsilon",
        "audit_function",
        "audit_samples",
        "epsilon_lower_bound",
    ),
    "calibration": (
        "gaussian_delta",
        "gaussian_epsilon",
        "gaussian_sigma",
    ),
    "fleet": ("Fleet",),
    "guarantee": (
        "Guarantee",
        "release_guarantee",
    ),
    "ledger": (
        "PrivacyBudgetExceeded",
        "PrivacyLedger",
        "require_guarantee",
    ),
    "mechanisms": (
        "Event",
        "Mechanism",
        "Permit",
        "Release",
        "mechanism",
    ),
    "mechanisms.dirichlet": (
        "DirichletEvent",
        "DirichletMechanism",
    ),
    "mechanisms.gaussian": ("GaussianMechanism",),
    "mechanisms.laplace": ("LaplaceMechanism",),
    "mechanisms.posterior": ("PosteriorMechanism",),
    "mechanisms.public": ("PublicMechanism",),
    "participants": (
        "Adjacency",
        "DeviceChain",
        "adjacency_from_counts",
        "chain_from_devices",
    ),
    "statement": (
        "FloorlessReport",
        "Setting",
        "floorless_report",
        "privacy_cost",
        "reach_statement",
        "reachable_settings",
    ),
}
_HOME = {name: (module, name) for module, names in _MODULES.items() for name in names}
# Former names of what describes a draw.
_HOME.update(Charge=("mechanisms.dirichlet", "DirichletEvent"), ReleasePlan=("mechanisms.dirichlet", "DirichletEvent"))

__all__ = [
    "Adjacency",
    "AuditResult",
    "Charge",
    "DeviceChain",
    "DirichletEvent",
    "DirichletMechanism",
    "Event",
    "Fleet",
    "FloorlessReport",
    "GaussianMechanism",
    "Guarantee",
    "LaplaceMechanism",
    "Loss",
    "Mechanism",
    "NoBound",
    "Permit",
    "PosteriorMechanism",
    "PrivacyBudgetExceeded",
    "PrivacyLedger",
    "PublicMechanism",
    "PureLoss",
    "Release",
    "ReleasePlan",
    "RowGroup",
    "RowLoss",
    "Setting",
    "UnreachableTarget",
    "adjacency_from_counts",
    "adjacent_row",
    "audit_average",
    "audit_epsilon",
    "audit_function",
    "audit_samples",
    "calibrate_groups",
    "calibrate_k",
    "chain_from_devices",
    "composed_delta",
    "composed_epsilon",
    "epsilon_lower_bound",
    "floorless_report",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_sigma",
    "largest_k",
    "losses",
    "mechanism",
    "pair_delta",
    "pair_epsilon",
    "privacy_cost",
    "reach_statement",
    "reachable_settings",
    "release_guarantee",
    "renyi_divergence",
    "renyi_epsilon",
    "renyi_limit",
    "require_guarantee",
    "theorem2_epsilon",
    "total_epsilon",
    "vanishing_k_composed",
    "vanishing_k_delta",
    "vanishing_k_epsilon",
    "worst_case_delta",
    "worst_case_epsilon",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in _HOME:
            module, attribute = _HOME[name]
            value = getattr(import_module(f"{__name__}.{module}"), attribute)
            globals()[name] = value
            return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
