"""What a result depends on besides its settings: the software and the kind of machine."""

from __future__ import annotations

import platform
from functools import cache
from importlib import metadata

from dp_ensemble_env import __version__

_PACKAGES = "numpy scipy numba gymnasium matplotlib dp-accounting torch stable-baselines3 sb3-contrib".split()


def versions() -> dict[str, str]:
    """Return the versions of Python, of this package and of the installed libraries, and the machine's kind."""
    return dict(_versions())


@cache
def _versions() -> dict[str, str]:
    machine = f"{platform.system()} {platform.machine()}"
    found = {"python": platform.python_version(), "machine": machine, "dp_ensemble_env": __version__}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
