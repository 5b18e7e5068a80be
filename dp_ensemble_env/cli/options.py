"""What several commands share: options, notes on stderr, and what is kept after Ctrl-C.

A command is a dataclass: its fields are its options, their docstrings the help, and its method ``run`` the work. The
mixins below bring the options that several commands have in common.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Literal

from dp_ensemble_env.scenarios.problem import (
    EventSettings,
    ForecastSettings,
    MeterSettings,
    ModelSettings,
    Problem,
    ProblemSettings,
)

if TYPE_CHECKING:
    from dp_ensemble_env.experiments.compare import Brought

#: What `--import` brought, if anything.
BROUGHT: ContextVar[Brought | None] = ContextVar("brought", default=None)
#: The command line as it was typed, for the pages that name it.
COMMAND_LINE: ContextVar[str] = ContextVar("command line", default="")


@dataclass(frozen=True, kw_only=True)
class OnProblem:
    """A command on one control problem."""

    problem: ModelSettings = ModelSettings()
    event: EventSettings = EventSettings()
    meter: MeterSettings = MeterSettings()
    forecast: ForecastSettings = ForecastSettings()

    @property
    def settings(self) -> ProblemSettings:
        """The problem as one set of settings; parts that do not fit each other are refused."""
        usual = type(self).problem.scenario
        return ProblemSettings.of(self.problem, self.event, self.meter, self.forecast, usual=usual)

    def load(self) -> Problem:
        """Build the problem, and say on stderr what was read and assumed."""
        problem = self.settings.build()
        say(*problem.notes)
        return problem


@dataclass(frozen=True, kw_only=True)
class InEnvironment(OnProblem):
    """A command in one environment of the problem."""

    population: int | Literal["mean-field", "single"] = "mean-field"
    """Infinitely many loads, a single one, or a number of them."""
    action: str = "tilt"
    """Action mode: signals, price, tilt, policy, discrete, or a registered one."""
    privacy: str | None = None
    """Let the agent see only a release: a mechanism such as dirichlet:k=50,floor=0.05, or a saved release."""
    release_seed: int | None = 0
    """Seed of the release."""


def parts(settings: ProblemSettings) -> dict[str, Any]:
    """Split settings into the fields of `OnProblem`."""
    kinds = {"problem": ModelSettings, "event": EventSettings, "meter": MeterSettings, "forecast": ForecastSettings}
    return {
        name: kind(**{f.name: getattr(settings, f.name) for f in fields(kind)})  # type: ignore[arg-type]
        for name, kind in kinds.items()
    }


def differences(options: Any, others: Any) -> list[str]:
    """Name the options of the environment in which two commands differ."""
    names: list[str] = []
    for f in fields(InEnvironment) if isinstance(options, InEnvironment) else fields(options):
        one, other = getattr(options, f.name), getattr(others, f.name)
        if is_dataclass(one):
            names += differences(one, other)
        elif one != other:
            names.append(f"--{f.name.replace('_', '-')}")
    return names


def check_finite(options: Any) -> None:
    """Refuse NaN and infinity, wherever they were given."""
    for f in fields(options):
        value = getattr(options, f.name)
        if is_dataclass(value):
            check_finite(value)
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, float) and not math.isfinite(one) and not f.metadata.get("infinite"):
                raise ValueError(f"--{f.name.replace('_', '-')} must be a finite number, got {one}.")


def say(*notes: str, most: int = 1000) -> None:
    """Print notes on stderr, each once."""
    told, width = list(dict.fromkeys(notes)), shutil.get_terminal_size().columns
    for note in [*told[:most], *([f"{len(told) - most} more notes are left out here."] if len(told) > most else [])]:
        print(textwrap.fill(f"note: {note}", width, break_long_words=False, break_on_hyphens=False), file=sys.stderr)


@contextlib.contextmanager
def keeping(words: Callable[[], str]) -> Iterator[None]:
    """Say what is kept when the block is interrupted."""
    try:
        yield
    except KeyboardInterrupt as stop:
        raise KeyboardInterrupt(*stop.args or (words(),)) from None
