"""Names for things that are loaded when first used: a registry for each extensible family, and lazy modules.

A built-in entry is a string ``"module:attribute"`` that is imported when it is first asked for, so that listing names
stays quick. A registered entry can be used wherever a name is accepted: environments, ledger, experiments and the
command line.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from dp_ensemble_env.tools.validation import check_choice

T = TypeVar("T")
#: Every registry of this process.
REGISTRIES: list[Registry[Any]] = []


class Registry(Generic[T]):
    """Entries of one kind by name.

    Parameters
    ----------
    kind : str
        The word for an entry in error messages.
    built_in : mapping of str to str
        ``"module:attribute"`` of each entry that comes with the package; if the attribute is a dictionary, the entry is
        looked up in it by name.
    """

    def __init__(self, kind: str, built_in: Mapping[str, str] | None = None) -> None:
        self.kind = kind
        self._places = dict(built_in or {})
        self._entries: dict[str, T] = {}
        #: Called with the name of every entry that is registered.
        self.watchers: list[Callable[[str], None]] = []
        REGISTRIES.append(self)

    def names(self) -> tuple[str, ...]:
        """All names, the built-in ones first."""
        return (*self._places, *(name for name in self._entries if name not in self._places))

    def added(self) -> dict[str, T]:
        """Return the entries that were registered from outside."""
        return {name: entry for name, entry in self._entries.items() if name not in self._places}

    def __contains__(self, name: object) -> bool:
        return name in self._places or name in self._entries

    def __getitem__(self, name: str) -> T:
        """Return the entry, importing it if need be; an unknown name is refused with the nearest known one."""
        check_choice(name, self.kind, self.names())
        if name not in self._entries:
            module, _, attribute = self._places[name].partition(":")
            found = getattr(importlib.import_module(module), attribute)
            self._entries.setdefault(name, found[name] if isinstance(found, dict) else found)
        return self._entries[name]

    def register(self, name: str, entry: T, *, replace: bool = False) -> None:
        """Add an entry of your own; a name that is taken is refused, or replaced if it is not a built-in one."""
        if not isinstance(name, str) or not name or any(c.isspace() or c in ":,=/" for c in name):
            raise ValueError(f"the name of a {self.kind} has no blanks and none of the signs : , = /, got {name!r}.")
        if name in self and not (replace and name not in self._places):
            raise ValueError(f"the {self.kind} {name!r} exists already; choose another name, or remove that one first.")
        self._entries[name] = entry
        for watcher in self.watchers:
            watcher(name)

    def remove(self, name: str) -> None:
        """Remove an entry that was registered."""
        if name in self._places or name not in self._entries:
            raise ValueError(f"the {self.kind} {name!r} cannot be removed; only registered entries can.")
        del self._entries[name]


def lazy(package: str, places: Mapping[str, Sequence[str]]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package whose names are imported when first used.

    Parameters
    ----------
    package : str
        Its ``__name__``.
    places : mapping of str to sequence of str
        Modules, named relative to the package, and the names to take from each.
    """
    home = {name: f"{package}.{module}" for module, names in places.items() for name in names}

    def get(name: str) -> Any:
        if name in home:
            return getattr(importlib.import_module(home[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get, lambda: sorted({*vars(sys.modules[package]), *home})
