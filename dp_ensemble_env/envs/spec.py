"""A spec that carries its model as plain numbers, so that the environment can be made again anywhere.

A Gymnasium spec can be written as JSON only if its arguments can. Those of the scenarios can (``instance``,
``privacy``, ...); a model from a meter file cannot, and the path of the file means nothing on another machine.

**With a release everything private stays out**: the spec holds the release and what `EnsembleModel.public` leaves of
the model. Observed counts and the customer baseline stay out with or without one: the environment needs neither.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.envs.registration import EnvSpec

from dp_ensemble_env.chain.event import EventTimeline
from dp_ensemble_env.context import Context
from dp_ensemble_env.coupling import Coupling
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy.release import Release
from dp_ensemble_env.scenarios import NAMESPACE
from dp_ensemble_env.shapes import Axis

Numbers = dict[str, Any]
#: Name of an environment that carries its model.
PORTABLE = f"{NAMESPACE}/Portable-v1"


def portable_spec(model: EnsembleModel, release: Release | None = None, **arguments: Any) -> EnvSpec:
    """Describe an environment by numbers alone, for ``gymnasium.make``: it comes back from JSON bit by bit.

    With a `release`, only the model's public fields are included. `arguments` are further arguments of `EnsembleEnv`
    that JSON can hold, such as ``action="tilt"``.
    """
    if "privacy" in arguments:
        raise ValueError("privacy= would put the private model into the spec; draw the release and pass release=.")
    numbers = {**arguments, "model": _model_numbers(model if release is None else model.public(release))}
    if release is not None:
        del numbers["model"]["default"]
        numbers["release"] = release.to_json()
    return EnvSpec(PORTABLE, entry_point=f"{__name__}:make_env", kwargs=numbers)


def make_env(model: Numbers, release: Numbers | None = None, **arguments: Any) -> EnsembleEnv:
    """Make the environment that `portable_spec` described."""
    drawn = None if release is None else Release.from_json(release)
    fields = dict(model) if drawn is None else {**model, "default": drawn.matrix}
    if fields["event"] is not None:
        event = {name: np.array(values) for name, values in fields["event"].items()}
        fields["event"] = EventTimeline(**{**event, "times": event["times"].astype("datetime64[s]")})
    fields["times"] = np.array(fields["times"], dtype="datetime64[s]")
    if fields.get("context") is not None:
        fields["context"] = Context(**fields["context"])
    if fields.get("coupling") is not None:
        level = [np.inf if kw is None else kw for kw in fields["coupling"]["level"]]
        fields["coupling"] = Coupling(**{**fields["coupling"], "level": np.array(level)})
    fields["axes"] = [Axis(name, values) for name, values in fields.get("axes", ())]
    return EnsembleEnv(EnsembleModel(**fields), privacy=drawn, **arguments)


def _model_numbers(model: EnsembleModel) -> Numbers:
    """Return a model as numbers; what the paper's model does not have only where there is any."""
    event, context, coupling = model.event, model.context, model.coupling
    arrays = ("default", "power_kw", "utility", "initial", "nature", "tilt_scale", "guess")
    content: Numbers = {name: getattr(model, name).tolist() for name in arrays if getattr(model, name) is not None}
    for name in ("discomfort_penalty", "loads", "spread_start", "shares_shown", "scenario"):
        content[name] = getattr(model, name)
    content |= {"times": _stamps(model.times), "event": None, "public_fields": list(model.public_fields)}
    if event is not None:
        numbers = {name: getattr(event, name).tolist() for name in ("energy_price", "incentive", "in_event")}
        content["event"] = {"times": _stamps(event.times), **numbers}
    if context is not None:
        numbers = {name: getattr(context, name).tolist() for name in ("transition", "start", "features")}
        content["context"] = {**numbers, "names": list(context.names), "signs": list(context.signs)}
    if coupling is not None:
        level = [float(kw) if np.isfinite(kw) else None for kw in coupling.level]  # JSON has no infinity
        content["coupling"] = {"kind": coupling.kind, "level": level, "weight": coupling.weight.tolist()}
    if model.axes:
        content["axes"] = [[axis.name, np.array(axis.values).tolist()] for axis in model.axes]
    return content


def _stamps(times: Any) -> list[str]:
    return [str(stamp) for stamp in times.astype("datetime64[s]")]
