"""The environment of a data set that somebody else made, without running what else its description may name.

A Minari data set says by *entry point*, the path of a Python object, how its environment is made, and
``dataset.recover_environment()`` imports and calls whatever that is. `recover_environment` does so for registered
environments only.
"""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from dp_ensemble_env.envs import spec as portable

#: What makes an environment whose model is in the description as numbers.
MAKER = f"{portable.__name__}:make_env"


def check_spec(spec: EnvSpec | None) -> EnvSpec:
    """Return a description of an environment that names registered things only; refuse any other."""
    if spec is None:
        raise ValueError("the data set does not say what its environment is; make the environment yourself.")
    known = EnvSpec(portable.PORTABLE, MAKER) if spec.id == portable.PORTABLE else gymnasium.registry.get(spec.id)
    if known is None:
        raise ValueError(f"the data set names the environment {spec.id!r}, which is not registered; import it first.")
    named = [
        ("entry point", spec.entry_point == known.entry_point, spec.entry_point),
        ("vector entry point", spec.vector_entry_point in (None, known.vector_entry_point), spec.vector_entry_point),
    ]
    named += [
        ("wrapper", str(wrapper.entry_point).startswith("gymnasium.wrappers."), wrapper.entry_point)
        for wrapper in spec.additional_wrappers or ()
    ]
    for what, fine, name in named:
        if not fine:
            raise ValueError(
                f"the data set of {spec.id} names the {what} {name!r}, which is not that of the registered "
                "environment; it would be executed, so the data set is refused."
            )
    return spec


def recover_environment(dataset: Any, **arguments: Any) -> gymnasium.Env[Any, Any]:
    """Make the environment of a Minari data set, whose description is checked first.

    Parameters
    ----------
    dataset : minari.MinariDataset
    **arguments
        Passed to ``gymnasium.make``.
    """
    return gymnasium.make(check_spec(dataset.env_spec), **arguments)
