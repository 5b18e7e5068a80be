"""Every option that several commands share, declared once, and what is made of them.

A command picks options by name or by group (`add`), and may change a default; what an option means is the same
everywhere. `load_problem` turns them into the control problem: the one place where commands read a meter.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dp_ensemble_env.cli.shell import Parser, did_you_mean
from dp_ensemble_env.scenarios.problem import READING as SETTINGS
from dp_ensemble_env.scenarios.problem import Problem, ProblemSettings, dirichlet_spec

if TYPE_CHECKING:
    from dp_ensemble_env.experiments.sweep.backends import Place

#: Action modes and populations in help texts; names that are registered elsewhere are accepted too.
POPULATIONS = "mean-field, single, or a number of loads"


# ------------------------------------------------------------------ values
def number(text: str) -> float:
    """Read a finite number."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, got {text!r}") from None
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"must be a finite number, got {text!r}")
    return value


def positive(text: str) -> float:
    """Read a number above zero."""
    value = number(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"must be a positive number, got {text}")
    return value


def nonnegative(text: str) -> float:
    """Read a number of at least zero."""
    value = number(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"must be at least 0, got {text}")
    return value


def whole(least: int = 0, most: int | None = None) -> Callable[[str], int]:
    """Return a reader of whole numbers from `least` on."""

    def read(text: str) -> int:
        value = number(text)
        if value != int(value):
            raise argparse.ArgumentTypeError(f"must be a whole number, got {text!r}")
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, got {text}")
        if most is not None and value > most:
            raise argparse.ArgumentTypeError(f"must be at most {most}, got {text}")
        return int(value)

    return read


def window(text: str) -> str:
    """Read the hours of an event."""
    if re.fullmatch(r"\d{1,2}:\d\d-\d{1,2}:\d\d", text) is None:
        raise argparse.ArgumentTypeError(f"must look like 11:00-15:00, got {text!r}")
    return text


def population(text: str) -> str | int:
    """Read a population: a word, or a number of loads."""
    if re.fullmatch(r"\d+", text):
        return whole(1)(text)
    words = ("mean-field", "single")
    if text not in words:
        hint = did_you_mean(text, words, f"choose {', '.join(words)} or a number of loads")
        raise argparse.ArgumentTypeError(f"does not know {text!r}; {hint}")
    return text


def tariff(text: str) -> float | str:
    """Read a price in dollars per kWh, or the name of a file with prices."""
    try:
        float(text)
    except ValueError:
        return text
    return number(text)


# ------------------------------------------------------------------ declarations
@dataclass(frozen=True)
class Option:
    """One option: its help, and how argparse reads it."""

    name: str
    group: str
    help: str
    default: Any = None
    settings: dict[str, Any] = field(default_factory=dict)


_ALL = (
    Option("meter", "data", "meter file of one building, instead of a scenario", None, {"metavar": "FILE"}),
    Option("column", "data", "its column or channel, or 'sum' for all of them"),
    Option("meter-id", "data", "which meter, if the file lists several one below the other, or 'sum'", None,
           {"metavar": "NAME"}),
    Option("unit", "data", "its unit, if the file does not say: kW, kWh, W, Wh, MW, MWh"),
    Option("stamp", "data", "which end of an interval its timestamps mark, if the file does not say",
           None, {"choices": ("start", "end")}),
    Option("timezone", "data", "time zone such as America/New_York, for the clock changes", None, {"metavar": "ZONE"}),
    Option("spikes", "data", "what to do with implausibly high readings", "error",
           {"choices": ("error", "missing", "keep")}),
    Option("negatives", "data", "what to do with negative readings", "error",
           {"choices": ("error", "missing", "keep")}),
    Option("cumulative", "data", "whether its values are those of a register that only counts up", "auto",
           {"choices": ("auto", "yes", "no")}),
    Option("catch-up", "data", "what to do with readings that carry the energy of a whole gap", "missing",
           {"choices": ("missing", "spread", "keep")}),
    Option("date-order", "data", "order of dates such as 7/1/2024", "auto", {"choices": ("auto", "mdy", "dmy")}),
    Option("limits", "data", "multiply all limits on the size of a file by this", 1.0,
           {"type": positive, "metavar": "TIMES"}),
    Option("season", "data", "use only readings between two days of the year, such as 06-15 09-25 (default all)",
           None, {"nargs": 2, "metavar": ("FROM", "TO")}),
    Option("exclude", "data", "days to leave out, such as 2018-07-05", (), {"nargs": "+", "metavar": "DAY"}),
    Option("holidays", "data", "holidays, which forecast and customer baseline skip; us means the US federal ones",
           ("us",), {"nargs": "+", "metavar": "DAY"}),
    Option("profile", "data", "whether the file is one building, or already the sum of all loads", "building",
           {"choices": ("building", "aggregate")}),
    Option("dynamics", "data", "let behaviour follow the day of the event, or use one chain for all times", "day",
           {"choices": ("day", "pooled")}),
    Option("temperature", "data", "CSV file of stamps and outdoor temperatures, with a forecast for the event's day",
           None, {"metavar": "FILE"}),
    Option("shed-floor", "data", "never push a load below this percentile of its occupied hours", 5.0,
           {"type": nonnegative, "metavar": "PERCENT"}),
    Option("response", "data", "calibrate the penalty: share of the energy that an event of $1 per kWh sheds", 0.15,
           {"type": positive, "metavar": "SHARE"}),
    Option("penalty-per-kw", "data", "state the penalty in dollars per nat and kW of usual load instead", None,
           {"type": positive, "metavar": "DOLLARS"}),
    Option("date", "event", "day of the event (default: the scenario's; for a meter, the first working day from 2 July "
           "on in its last summer)", None, {"metavar": "DAY"}),
    Option("window", "event", "its hours (default 11:00-15:00)", None, {"type": window, "metavar": "HH:MM-HH:MM"}),
    Option("incentive", "event", "dollars per kWh during the event (default 1)", None,
           {"type": number, "metavar": "PRICE"}),
    Option("tariff", "event", "energy price in dollars per kWh, or a CSV file of prices (default 0.137)", None,
           {"type": tariff, "metavar": "PRICE"}),
    Option("scenario", "problem", "built-in problem; see dp-ensemble scenarios", "campus-event", {"metavar": "NAME"}),
    Option("instance", "problem", "which of the scenario's training instances", 0, {"type": whole(0, 999_999),
           "metavar": "N"}),
    Option("levels", "problem", "number of power levels (default 20; 40 for a metered day)", None,
           {"type": whole(2, 100_000), "metavar": "N"}),
    Option("loads", "problem", "loads of the ensemble (default 100); with a meter, copies of the building (default 1)",
           None, {"type": whole(1), "metavar": "N"}),
    Option("penalty", "problem", "discomfort in dollars per load and nat (default 15; for a metered day see "
           "--response)", None, {"type": positive, "metavar": "DOLLARS"}),
    Option("population", "problem", POPULATIONS, "mean-field", {"type": population, "metavar": "LOADS"}),
    Option("action", "problem", "action mode: price, tilt, policy, discrete, or a registered one", "tilt",
           {"metavar": "MODE"}),
    Option("privacy", "problem", "let the agent see only a release: a mechanism such as dirichlet:k=50,floor=0.05, or "
           "a saved release (default: the true dynamics)", None, {"metavar": "SPEC"}),
    Option("k", "problem", "short for --privacy dirichlet:k=K", None, {"type": positive, "metavar": "K"}),
    Option("floor", "problem", "least probability before the draw, with --k (default 0)", None,
           {"type": nonnegative, "metavar": "P"}),
    Option("release-seed", "problem", "seed of the release", 0, {"type": whole(), "metavar": "N"}),
    Option("seed", "run", "seed of everything random except the release", 0,
           {"type": whole(0, 2**31 - 1), "metavar": "N"}),
    Option("jobs", "run", "processes at a time", 1, {"type": whole(1, 4096), "metavar": "N"}),
    Option("output", "run", "folder to write to", None, {"type": Path, "metavar": "FOLDER"}),
    Option("force", "run", "replace what is there", False, {"action": "store_true"}),
    Option("resume", "run", "continue what was interrupted", False, {"action": "store_true"}),
)  # fmt: skip
OPTIONS = {option.name: option for option in _ALL}
TITLES = {
    "data": "data (your own meter instead of a scenario)",
    "event": "event",
    "problem": "problem",
    "run": "run",
}
#: Groups that commands pick whole.
READING = tuple(name.replace("_", "-") for name in SETTINGS if name.replace("_", "-") in OPTIONS)
DATA = tuple(option.name for option in _ALL if option.group == "data")
#: Those that say how a metered day becomes a problem; the others say how its readings are read.
DAY = ("dynamics", "temperature", "shed-floor", "response", "penalty-per-kw")
METER = tuple(name for name in DATA if name not in DAY)
EVENT = tuple(option.name for option in _ALL if option.group == "event")
MODEL = ("scenario", "instance", "levels", "loads", "penalty")
PRIVACY = ("privacy", "k", "floor", "release-seed")
PROBLEM = (*DATA, *EVENT, *MODEL)


def add(parser: Parser, *names: str, helps: dict[str, str] | None = None, **defaults: Any) -> None:
    """Add shared options to a parser, under the headings of their groups.

    Parameters
    ----------
    *names
        Of `OPTIONS`.
    helps : dict, optional
        What an option means for this command in particular, where there is more to say.
    **defaults
        Defaults that differ from the declared ones.
    """
    groups = {group.title: group for group in parser._action_groups}
    for name in names:
        option = OPTIONS[name]
        title = TITLES[option.group]
        if title not in groups:
            groups[title] = parser.add_argument_group(title)
        settings = dict(option.settings)
        default = defaults.get(name.replace("-", "_"), option.default)
        if "nargs" in settings or settings.get("action") == "store_true" or default is not None:
            settings["default"] = list(default) if isinstance(default, tuple) else default
        text = (helps or {}).get(name, option.help)
        groups[title].add_argument(f"--{name}", help=text, **settings)


# ------------------------------------------------------------------ from options to objects
def problem_settings(args: argparse.Namespace) -> ProblemSettings:
    """Gather the options that describe a control problem."""
    values = {f.name: getattr(args, f.name) for f in fields(ProblemSettings) if hasattr(args, f.name)}
    for name in ("season", "exclude", "holidays"):
        if values.get(name) is not None:
            values[name] = tuple(values[name])
    settings = ProblemSettings(**values)
    if settings.meter is None:
        plain = ProblemSettings()
        for option in DATA:
            if option == "dynamics":  # some commands have another default
                continue
            name = option.replace("-", "_")
            if name in values and getattr(settings, name) != getattr(plain, name):
                raise ValueError(f"--{option} says how a meter file is read; give one with --meter, or leave it out.")
    elif settings.scenario != ProblemSettings().scenario:
        raise ValueError("--scenario and --meter exclude each other: a problem is built in or made from your file.")
    return settings


def load_problem(args: argparse.Namespace) -> Problem:
    """Build the control problem that the options describe, and say on stderr what was read and assumed."""
    problem = problem_settings(args).build()
    say_notes(problem)
    return problem


def say_notes(problem: Problem) -> None:
    """Print what the reader and the model have to say."""
    for note in problem.notes:
        say(note)


def say(note: str) -> None:
    """Print a note on stderr."""
    print(f"note: {note}", file=sys.stderr)


def say_once(notes: list[tuple[str, ...]], most: int = 12) -> None:
    """Print what several meters have to say, each sentence once."""
    told = list(dict.fromkeys(note for some in notes for note in some))
    for note in told[:most]:
        say(note)
    if len(told) > most:
        say(f"{len(told) - most} more notes on single meters are left out here.")


def say_left_out(refused: dict[str, str], meters: int) -> None:
    """Name the meters that cannot be used, with the reason; refuse to go on when none is left."""
    if len(refused) == meters:
        raise ValueError(f"none of the {meters} meters can be used. For one: {next(iter(refused.values()))}")
    for name, why in refused.items():
        say(f"{name} is left out: {why}")


def privacy_spec(args: argparse.Namespace) -> str | None:
    """Return the mechanism that the options ask for, None for the true dynamics."""
    k, floor = getattr(args, "k", None), getattr(args, "floor", None)
    if args.privacy is not None and (k is not None or floor is not None):
        raise ValueError("--privacy already names the mechanism; leave --k and --floor out.")
    if args.privacy is not None:
        return str(args.privacy)
    if k is None:
        if floor is not None:
            raise ValueError("--floor belongs to a release; give --k too.")
        return None
    return dirichlet_spec(k, floor or 0.0)


def add_place(group: Any) -> None:
    """Declare where cells are run; ``--jobs`` is declared apart."""
    group.add_argument("--backend", choices=("local", "ray"), default="local", help="where to run")
    group.add_argument("--address", help="of a Ray cluster, or auto (default: start Ray on this machine)")


def place_of(args: argparse.Namespace) -> Place:
    """Return where cells are run, or refuse what cannot work."""
    from dp_ensemble_env.experiments.sweep.backends import Place

    return Place(args.backend, args.address, args.jobs)


def set_options(pairs: list[str]) -> dict[str, Any]:
    """Read ``name=value`` pairs; values are JSON, and text where they are not."""
    changes: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise ValueError(f"--set takes name=value, got {pair!r}.")
        try:
            changes[name.strip()] = json.loads(value)
        except json.JSONDecodeError:
            changes[name.strip()] = value
    return changes
