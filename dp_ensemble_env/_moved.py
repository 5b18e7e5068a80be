"""Former places of modules: an import of one finds the present module, with a deprecation warning.

Importing this module does nothing but append one finder to ``sys.meta_path``, which is asked last.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

#: Former module, and where its content is now.
MOVED = {
    "campus": "scenarios.campus",
    "markov": "chain.markov",
    "page": "reporting.page",
    "plotting": "reporting.plotting",
    "report": "reporting.outcome",
    "privacy.account": "privacy.accounting.account",
    "privacy.adjacency": "privacy.participants",
    "privacy.composition": "privacy.accounting.composition",
    "privacy.divergence": "privacy.accounting.divergence",
    "privacy.mechanism": "privacy.mechanisms.dirichlet",
    "privacy.pictures": "reporting.privacy_plots",
    "privacy.theorem2": "privacy.accounting.theorem2",
}
_PACKAGE = __name__.rpartition(".")[0]


class MovedFinder:
    """Finds modules at their former places; a loader of its own."""

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Answer for the names in the table only."""
        head, _, tail = name.partition(".")
        return ModuleSpec(name, cls) if head == _PACKAGE and tail in MOVED else None  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: ModuleSpec) -> ModuleType:
        """Return the module at its present place."""
        now = f"{_PACKAGE}.{MOVED[spec.name.partition('.')[2]]}"
        warnings.warn(f"{spec.name} has moved to {now}; import it from there.", DeprecationWarning, stacklevel=2)
        module = importlib.import_module(now)
        spec.loader_state = module.__spec__  # which the import system is about to overwrite
        return module

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Give the module its own spec back; it has run already."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


sys.meta_path.append(MovedFinder)
