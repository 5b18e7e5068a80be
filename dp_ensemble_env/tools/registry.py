"""A registry for each extensible family, the files and packages that fill it from outside, and lazy modules.

A built-in entry is a string ``"module:attribute"`` that is imported when it is first asked for, so that listing names
stays quick. A registered entry can be used wherever a name is accepted: environments, ledger, experiments and the
command line.

A user's file is run once in a process, as a module that is named after the SHA-256 of its content; on the command line
``--import FILE`` does so. A package names a module to import in the entry points group ``dp_ensemble_env.plugins``::

    [project.entry-points."dp_ensemble_env.plugins"]
    mine = "my_package.dp_ensemble"

Both run the code of whoever wrote it.
"""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from types import ModuleType
from typing import Any, Generic, TypeVar

from dp_ensemble_env.tools.validation import check_choice

T = TypeVar("T")
#: Every registry of this process.
REGISTRIES: list[Registry[Any]] = []


class Registry(Generic[T]):
    """Entries of one kind by name; of a built-in entry whose attribute is a dictionary, the item of that name."""

    def __init__(self, kind: str, built_in: Mapping[str, str] | None = None) -> None:
        self.kind = kind
        self._places = dict(built_in or {})
        self._entries: dict[str, T] = {}
        #: Called with the name of every entry that is registered.
        self.watchers: list[Callable[[str], None]] = []
        REGISTRIES.append(self)

    def names(self) -> tuple[str, ...]:
        """Return all names, the built-in ones first."""
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
            value = getattr(importlib.import_module(module), attribute)
            self._entries.setdefault(name, value[name] if isinstance(value, dict) else value)
        return self._entries[name]

    def register(self, name: str, entry: T, *, replace: bool = False) -> None:
        """Add an entry of your own; a name that is taken is refused, or replaced if it is not a built-in one."""
        if not isinstance(name, str) or not name or any(c.isspace() or c in ":,=/" for c in name):
            raise ValueError(f"the name of a {self.kind} must not contain blanks or any of : , = /, got {name!r}.")
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
    """Return ``__getattr__`` and ``__dir__`` of a package whose names are imported from its modules when first used."""
    home = {name: f"{package}.{module}" for module, names in places.items() for name in names}

    def get(name: str) -> Any:
        if name in home:
            return getattr(importlib.import_module(home[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get, lambda: sorted({*vars(sys.modules[package]), *home})


# ------------------------------------------------------------------ plugins
GROUP = "dp_ensemble_env.plugins"


@dataclass(frozen=True)
class Plugin:
    """A file that was run: the SHA-256 of its content, its module, and what it registered in each registry."""

    digest: str
    module: ModuleType
    entries: tuple[tuple[Registry[Any], str, Any], ...]

    @property
    def names(self) -> frozenset[str]:
        """The names of what it registered."""
        return frozenset(name for _, name, _ in self.entries)


_LOADED: dict[str, Plugin] = {}


def load_source(source: bytes, name: str = "a plugin") -> Plugin:
    """Run the text of a Python file, which need not be on this machine.

    A text that ran before is not run again; its entries are those that count again, should another have replaced them.
    """
    digest = hashlib.sha256(source).hexdigest()
    if digest in _LOADED:
        for registry, entry_name, entry in _LOADED[digest].entries:
            if registry.added().get(entry_name) is not entry:
                registry.register(entry_name, entry, replace=True)
        return _LOADED[digest]
    key = f"dp_ensemble_plugin_{digest}"
    module = ModuleType(key, f"The plugin {name}.")
    module.__file__ = name
    sys.modules[key] = module  # before it runs, so that its classes can be pickled
    before = {id(registry): registry.added() for registry in REGISTRIES}
    try:
        exec(compile(source, name, "exec"), module.__dict__)
    except Exception as error:
        del sys.modules[key]
        raise ValueError(f"{name} cannot be imported: {type(error).__name__}: {error}.") from error
    entries = tuple(
        (registry, entry_name, entry)
        for registry in REGISTRIES
        for entry_name, entry in registry.added().items()
        if before.get(id(registry), {}).get(entry_name) is not entry
    )
    _LOADED[digest] = Plugin(digest, module, entries)
    return _LOADED[digest]


def load_entry_points() -> tuple[str, ...]:
    """Import the plugins of installed packages; return their names."""
    points = metadata.entry_points(group=GROUP)
    for point in points:
        try:
            point.load()
        except Exception as error:
            raise ValueError(
                f"the plugin {point.name!r} ({point.value}) cannot be imported: {type(error).__name__}: {error}; "
                "fix or uninstall it."
            ) from error
    return tuple(point.name for point in points)
