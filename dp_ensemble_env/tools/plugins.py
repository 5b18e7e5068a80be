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
from importlib import metadata
from pathlib import Path
from types import ModuleType

from dp_ensemble_env.tools.files import readable_file

GROUP = "dp_ensemble_env.plugins"


def load_file(path: str | os.PathLike[str]) -> str:
    """Run a Python file, unless a file of the same content ran before; return the SHA-256 of its content."""
    file = Path(path)
    if not file.exists():
        raise ValueError(f"there is no file {file} to import; give a Python file that registers something.")
    readable_file(file)
    return load_source(file.read_bytes(), str(file))


def load_source(source: bytes, name: str = "a plugin") -> str:
    """Run the text of a Python file, as workers on other machines do that have no such file; return its SHA-256."""
    digest = hashlib.sha256(source).hexdigest()
    key = f"dp_ensemble_plugin_{digest}"
    if key in sys.modules:
        return digest
    module = ModuleType(key, f"The plugin {name}.")
    module.__file__ = name
    sys.modules[key] = module  # before it runs, so that its classes can be pickled
    try:
        exec(compile(source, name, "exec"), module.__dict__)
    except Exception as error:
        del sys.modules[key]
        raise ValueError(f"{name} cannot be imported: {type(error).__name__}: {error}.") from error
    return digest


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
