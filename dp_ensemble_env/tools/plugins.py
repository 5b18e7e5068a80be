"""Code of a user's own: files and installed packages that register agents, scenarios, mechanisms, formats or modes.

A file is run once in a process, as a module that is named after the SHA-256 of its content. A package names a module to
import in the entry points group ``dp_ensemble_env.plugins``::

    [project.entry-points."dp_ensemble_env.plugins"]
    mine = "my_package.dp_ensemble"

On the command line ``--import FILE`` runs a file. Both run the code of whoever wrote it.
"""

from __future__ import annotations

import hashlib
import os
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from dp_ensemble_env.tools.files import readable_file
from dp_ensemble_env.tools.registry import REGISTRIES, Registry

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


def load_file(path: str | os.PathLike[str]) -> Plugin:
    """Run a Python file, unless a file of the same content ran before."""
    file = Path(path)
    if not file.exists():
        raise ValueError(f"there is no file {file} to import; give a Python file that registers something.")
    readable_file(file)
    return load_source(file.read_bytes(), str(file))


def load_source(source: bytes, name: str = "a plugin") -> Plugin:
    """Run the text of a Python file, as workers on other machines do that have no such file.

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
    before = [(registry, registry.added()) for registry in REGISTRIES]
    try:
        exec(compile(source, name, "exec"), module.__dict__)
    except Exception as error:
        del sys.modules[key]
        raise ValueError(f"{name} cannot be imported: {type(error).__name__}: {error}.") from error
    known = {id(registry): entries for registry, entries in before}
    entries = tuple(
        (registry, entry_name, entry)
        for registry in REGISTRIES
        for entry_name, entry in registry.added().items()
        if known.get(id(registry), {}).get(entry_name) is not entry
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
                "mend or uninstall it."
            ) from error
    return tuple(point.name for point in points)
