"""Privacy: mechanisms, guarantees, a ledger of the privacy spent, and audits by attack.

Names are imported when first used, so that importing the package stays cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_MODULES = {
    "accounting.calibrate": "concentrated_sigma gaussian_delta gaussian_epsilon gaussian_sigma",
    "accounting.compose": (
        "Accountant RowGroup UnreachableTarget calibrate_k composed_epsilon largest_k renyi_epsilon "
        "total_delta total_epsilon"
    ),
    "accounting.divergence": (
        "adjacent_row pair_delta pair_epsilon renyi_divergence renyi_limit theorem2_epsilon "
        "vanishing_k_epsilon worst_case_delta worst_case_epsilon"
    ),
    "accounting.losses": (
        "ConcentratedLoss GaussianLoss LaplaceLoss Loss Losses NoBound PosteriorLoss PureLoss RenyiLoss RowLoss"
    ),
    "adjacency": "Adjacency DeviceChain NeighboringRelation adjacency_from_counts",
    "audit": "AuditResult audit_epsilon audit_pair audit_samples epsilon_lower_bound",
    "fleet": "Fleet",
    "ledger": "PrivacyBudgetExceeded PrivacyLedger require_guarantee",
    "mechanisms": "mechanism",
    "mechanisms.base": "Event Mechanism Permit",
    "mechanisms.dirichlet": "DirichletEvent DirichletMechanism",
    "mechanisms.gaussian": "GaussianMechanism",
    "mechanisms.laplace": "LaplaceMechanism",
    "mechanisms.posterior": "PosteriorMechanism",
    "mechanisms.public": "PublicMechanism",
    "release": "Release",
    "statement": "PrivacyCard release_guarantee",
}
_HOME = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    return value


def __dir__() -> list[str]:
    return __all__
