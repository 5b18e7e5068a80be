"""Mechanisms: how a private copy of the default behaviour is drawn, and their registry.

``mechanisms.register("mine", MyMechanism)`` makes ``privacy="mine:scale=2"`` work in environments, ledger, experiments
and the command line. A process without that code still reads and composes what the mechanism wrote into a ledger.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dp_ensemble_env.privacy.mechanisms.base import Event, Mechanism, Permit
from dp_ensemble_env.tools.registry import Registry
from dp_ensemble_env.tools.validation import check_choice

if TYPE_CHECKING:
    from dp_ensemble_env.privacy.release import Release

__all__ = ["Event", "Mechanism", "Permit", "as_privacy", "kind", "mechanism", "names", "register", "remove"]

_HERE = "dp_ensemble_env.privacy.mechanisms"
#: Settings that a spec of a mechanism for participants may add, so that they are simulated.
_SIMULATED = {"participants": "int", "heterogeneity": "float"}
_REGISTRY: Registry[type[Mechanism]] = Registry(
    "mechanism",
    {
        "adaptive": f"{_HERE}.adaptive:AdaptiveMechanism",
        "dirichlet": f"{_HERE}.dirichlet:DirichletMechanism",
        "gaussian": f"{_HERE}.gaussian:GaussianMechanism",
        "laplace": f"{_HERE}.laplace:LaplaceMechanism",
        "posterior": f"{_HERE}.posterior:PosteriorMechanism",
        "public": f"{_HERE}.public:PublicMechanism",
    },
)
kind, names, register, remove = _REGISTRY.__getitem__, _REGISTRY.names, _REGISTRY.register, _REGISTRY.remove


def mechanism(spec: str | Mechanism) -> Mechanism:
    """Make a mechanism from its name and, after a colon, its settings; return a mechanism unchanged.

    With ``participants=1000`` a mechanism that protects participants draws from 1,000 simulated participants of the
    model; ``heterogeneity`` says how much they differ.

    >>> mechanism("dirichlet:k=50,floor=0.05")
    DirichletMechanism(k=50.0, floor=0.05, h=None)
    """
    if isinstance(spec, Mechanism):
        return spec
    if not isinstance(spec, str):
        raise ValueError(
            f"a mechanism is written like 'dirichlet:k=50,floor=0.05', got {spec!r}; the mechanisms are "
            f"{', '.join(names())}."
        )
    name, _, text = spec.strip().partition(":")
    chosen: Any = _REGISTRY[name.strip()]
    fleet = chosen.of_fleet
    known = {one.name: str(one.type) for one in dataclasses.fields(chosen)} | (_SIMULATED if fleet else {})
    settings: dict[str, Any] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        key, _, value = map(str.strip, part.partition("="))
        check_choice(key, f"setting of the {name} mechanism", known)
        if not value:
            raise ValueError(f"the setting {key!r} of {spec!r} has no value; write {key}=NUMBER.")
        if key in settings:
            raise ValueError(f"{spec!r} sets {key!r} twice; set it once.")
        settings[key] = _read(value, known[key])
    crowd = {key: settings.pop(key) for key in _SIMULATED if fleet and key in settings}
    needed = (one.name for one in dataclasses.fields(chosen) if one.default is dataclasses.MISSING)
    if missing := [field for field in needed if field not in settings]:
        raise ValueError(f"{spec!r} lacks {' and '.join(missing)}; write {name}:{missing[0]}=NUMBER.")
    made: Mechanism = chosen(**settings)
    if not crowd:
        return made
    from dp_ensemble_env.privacy.participants import SimulatedFleet

    if "participants" not in crowd:
        raise ValueError(f"{spec!r} sets heterogeneity but not how many participants there are; add participants=1000.")
    return SimulatedFleet(made, **crowd)  # type: ignore[arg-type]


def as_privacy(privacy: Any) -> Mechanism | Release:
    """Read a mechanism, a release, the path of a saved release, or a text such as ``"dirichlet:k=50"``."""
    from dp_ensemble_env.privacy.release import Release

    if isinstance(privacy, (Mechanism, Release)):
        return privacy
    if isinstance(privacy, os.PathLike) or (isinstance(privacy, str) and Path(privacy).suffix in (".json", ".npz")):
        return Release.load(privacy)
    return mechanism(privacy)


def _read(text: str, annotation: str) -> Any:
    """Read a setting as the type that its field declares; what is no number stays text and is refused by the field."""
    for number in (int, float):
        if number.__name__ in annotation:
            with contextlib.suppress(ValueError):
                return number(text)
    return text
