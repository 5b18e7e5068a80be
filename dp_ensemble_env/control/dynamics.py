"""A model's behaviour, nature and context in the form that the solver takes; computed once for each model."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from dp_ensemble_env.control.kernel import LogKernel
from dp_ensemble_env.model import EnsembleModel

_KERNELS: WeakKeyDictionary[EnsembleModel, tuple[LogKernel, LogKernel | None]] = WeakKeyDictionary()


def default_kernel(model: EnsembleModel) -> LogKernel:
    """Return the default behaviour as a kernel."""
    return _kernels(model)[0]


def nature_kernel(model: EnsembleModel) -> LogKernel | None:
    """Return nature as a kernel, None where a decision is the next state."""
    return _kernels(model)[1]


def world(model: EnsembleModel) -> dict[str, Any]:
    """Return nature and context as the functions of `lsmdp` take them by keyword."""
    return {"nature": nature_kernel(model), "context": None if model.context is None else model.context.transition}


def _kernels(model: EnsembleModel) -> tuple[LogKernel, LogKernel | None]:
    if model not in _KERNELS:
        plain = model.nature is None and model.context is None
        default = LogKernel.from_probabilities(model.default) if plain else LogKernel.of_contexts(model.default)
        nature = None if model.nature is None else LogKernel.of_contexts(model.nature, "nature")
        _KERNELS[model] = default, nature
    return _KERNELS[model]
