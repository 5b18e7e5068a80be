"""Privacy: the Dirichlet mechanism, what it guarantees, what was spent, and an attacker to check it.

Names are imported when first used, so that importing the package stays cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_MODULES = {
    "participants": ("Adjacency", "DeviceChain", "adjacency_from_counts", "chain_from_devices"),
    "audit": (
        "AuditResult",
        "audit_average",
        "audit_epsilon",
        "audit_function",
        "audit_samples",
        "epsilon_lower_bound",
    ),
    "accounting.charge": ("Charge", "ReleasePlan"),
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
    "guarantee": ("Guarantee", "release_guarantee"),
    "ledger": ("PrivacyBudgetExceeded", "PrivacyLedger"),
    "mechanisms.dirichlet": ("DirichletMechanism", "Release"),
    "statement": (
        "FloorlessReport",
        "Setting",
        "floorless_report",
        "privacy_cost",
        "reach_statement",
        "reachable_settings",
    ),
    "accounting.theorem2": ("theorem2_epsilon",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_HOME)  # noqa: PLE0605 - built from the table above


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
