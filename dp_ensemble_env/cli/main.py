"""One entry point for every command: dispatch, errors of one sentence, and Ctrl-C."""

from __future__ import annotations

import contextlib
import contextvars
import importlib
import inspect
import io
import os
import re
import shlex
import sys
import textwrap
import warnings
from difflib import get_close_matches
from pathlib import Path
from types import NoneType
from typing import Any, get_args

PROGRAM = "dp-ensemble"
#: Commands by heading, and what each does. Those of "privacy" and "meters" are classes in the module of that name (the
#: one of "privacy audit" is `Audit`), and each of the others is in a module of its own.
COMMANDS = {
    "benchmark": {
        "scenarios": "list the built-in problems, or show one",
        "train": "train a learner and keep the run",
        "evaluate": "score an agent or a run",
        "play": "set the price by hand, beside the optimum",
        "compare": "compare controllers: table, pictures, page",
        "leaderboard": "score agents by one protocol, and make the page",
        "validate": "check the policies against simulation",
        "reproduce": "compute the paper's figures and claims again",
        "dataset": "write offline data sets for Minari",
    },
    "privacy": {
        "privacy guarantee": "compute what a release guarantees",
        "privacy calibrate": "find the largest k that reaches a target",
        "privacy release": "draw one private matrix, charged to a ledger",
        "privacy audit": "attack the mechanism and what only looks private",
        "privacy frontier": "score against epsilon, with participants",
        "privacy regret": "where each lost dollar went",
    },
    "meters": {
        "backtest": "forecast days without an event, and compare",
        "plan": "make a dispatch for an event from meters",
        "settle": "settle an event: energy, performance factor, payment",
    },
}
OVERVIEW = f"""usage: {PROGRAM} COMMAND [options]

Privacy-aware demand response: problems with a known optimum, and what privacy
costs. Run {PROGRAM} COMMAND --help for the options of a command.

{{}}
every command:
  --import FILE       run a Python file first, which registers your own agents,
                      scenarios, mechanisms, action modes or meter formats

  --version           show the version"""
#: The extra that brings a module.
EXTRAS = {
    **{"matplotlib": "plots", "pygame": "render", "PIL": "render", "pyarrow": "data", "openpyxl": "excel"},
    **dict.fromkeys(("stable_baselines3", "sb3_contrib", "torch", "tensorboard", "safetensors"), "rl"),
    **{"minari": "minari", "ray": "ray", "opendp": "opendp", "cvxpy": "test"},
}


class UsageError(ValueError):
    """The command line cannot be understood."""


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit status: 0, 2 after an error, 130 after Ctrl-C."""
    words = sys.argv[1:] if argv is None else list(argv)
    command = next((" ".join(words[:n]) for n in (2, 1) if " ".join(words[:n]) in names()), "")

    def complain(text: str) -> None:
        with contextlib.suppress(OSError):
            print(f"{PROGRAM} {command}".rstrip() + f": {text}", file=sys.stderr, flush=True)

    def note(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        if issubclass(category, UserWarning):
            complain(" ".join(str(message).split()))

    with warnings.catch_warnings():
        warnings.showwarning = note
        try:
            status = contextvars.copy_context().run(run, command, words[len(command.split()) :])
            sys.stdout.flush()
            return status
        except SystemExit as stop:  # tyro has shown the help, or an error in a box
            return int(stop.code or 0)
        except BrokenPipeError:  # the reader of our output has gone
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            return 1
        except KeyboardInterrupt as stop:
            complain("; ".join(("interrupted", *map(str, stop.args))) + ".")
            return 130
        except (ValueError, OSError, ImportError, ArithmeticError) as error:
            complain(sentence(error))
            return 2


def names() -> list[str]:
    """Return the commands."""
    return [name for group in COMMANDS.values() for name in group]


def command_class(command: str) -> Any:
    """Return the class of a command."""
    heading = next(heading for heading, group in COMMANDS.items() if command in group)
    module = importlib.import_module(f"dp_ensemble_env.cli.{command if heading == 'benchmark' else heading}")
    return getattr(module, command.split()[-1].title())


def run(command: str, words: list[str]) -> int:
    """Run a command on its words; without one, show the help or the version."""
    if command:
        options = importlib.import_module("dp_ensemble_env.cli.options")
        importlib.import_module("dp_ensemble_env.tools.validation").ON_COMMAND_LINE.set(True)
        options.COMMAND_LINE.set(shlex.join([PROGRAM, *command.split(), *words]))
        files, words = imported(words)
        importlib.import_module("dp_ensemble_env.tools.registry").load_entry_points()
        compare = importlib.import_module("dp_ensemble_env.experiments.compare") if files else None
        options.BROUGHT.set(None if compare is None else compare.Brought.read(files))
        asked = parse(command_class(command), words, f"{PROGRAM} {command}")
        options.check_finite(asked)
        return int(asked.run())
    if words[:1] == ["--version"]:
        print(f"{PROGRAM} {importlib.import_module('dp_ensemble_env').__version__}")
    elif {"-h", "--help"} & set(words[:2]):
        print(overview())
    elif words and words != ["privacy"]:
        asked = " ".join(words[: 1 + (words[0] == "privacy")])
        close = get_close_matches(asked, [*names(), "--help", "--version"], 1)
        hint = f"did you mean {close[0]!r}?" if close else f"see {PROGRAM} --help"
        raise UsageError(f"there is no {'option' if asked[0] == '-' else 'command'} {asked!r}; {hint}")
    else:
        print(overview(), file=sys.stderr)
        return 2
    return 0


def imported(words: list[str]) -> tuple[list[Path], list[str]]:
    """Take the files of ``--import`` out of the words of a command; every command takes them."""
    files: list[Path] = []
    rest: list[str] = []
    left = iter(words)
    for word in left:
        name, equals, value = word.partition("=")
        if name != "--import":
            rest.append(word)
        elif (value := value if equals else next(left, "")) and not value.startswith("--"):
            files.append(Path(value))
        else:
            raise UsageError("--import needs a Python file that registers something")
    return files, rest


def overview() -> str:
    """Return the help of the program: its commands by subject."""
    groups = [
        [f"{name}:", *(f"  {one:<20}{words}" for one, words in group.items()), ""] for name, group in COMMANDS.items()
    ]
    return OVERVIEW.format("\n".join(line for group in groups for line in group))


def parse(kind: Any, words: list[str], prog: str) -> Any:
    """Read the options of a command; what cannot be understood is one sentence."""
    import tyro

    if {"-h", "--help"} & set(words):  # tyro does not wrap a description
        for part in inspect.cleandoc(kind.__doc__).split("\n\n"):
            print(part if "\n  " in part else textwrap.fill(part, 80, break_on_hyphens=False), end="\n\n")
        kind = kind.shown() if hasattr(kind, "shown") else kind
    marks = (tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff, tyro.conf.HelptextFromCommentsOff,
             tyro.conf.DisallowNone)  # fmt: skip
    registry = tyro.constructors.ConstructorRegistry()
    registry.primitive_rule(plain)
    settings: dict[str, Any] = {"prog": prog, "description": "", "args": words, "config": marks, "registry": registry}
    if hasattr(kind, "remembered") and (default := kind.remembered(words)) is not None:
        settings["default"] = default
    with contextlib.redirect_stderr(io.StringIO()) as told:
        try:
            return tyro.cli(kind, **settings)
        except SystemExit as stop:
            if not stop.code:
                raise
    raise UsageError(f"{unboxed(told.getvalue())}; see {prog} --help")


def plain(info: Any) -> Any:
    """Tell tyro how to read a number, perhaps one among words, and a pair: with our words for what is none."""
    import tyro

    kinds = [kind for kind in get_args(info.type) or (info.type,) if kind is not NoneType]
    named = [name for kind in kinds for name in get_args(kind)]
    wanted = next((kind for kind in kinds if kind in (int, float)), None)
    if kinds == [tuple[str, str]]:
        return tyro.constructors.PrimitiveConstructorSpec(2, "STR STR", tuple, lambda _: True, lambda pair: [str(pair)])
    if wanted is None or str in kinds or info.type_origin is tuple:
        return None

    def read(words: list[str]) -> Any:
        with contextlib.suppress(ValueError):
            return words[0] if words[0] in named else wanted(words[0])
        asked = " or ".join([*named, "a whole number" if wanted is int else "a number"])
        raise ValueError(f"{words[0]!r} is not {asked}")

    metavar = "|".join([wanted.__name__.upper(), *(["{" + ",".join(named) + "}"] if named else [])])
    return tyro.constructors.PrimitiveConstructorSpec(1, metavar, read, lambda _: True, lambda value: [str(value)])


def unboxed(text: str) -> str:
    """Return on one line what tyro says in a box, whose sections are divided by rules.

    The first section says what is wrong, and the last one names ``--help``. If one between them lists options, with
    their help indented further, the first option is the closest.
    """
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line)[2:].rstrip(" │|") for line in text.splitlines()[1:]]  # after the title
    sections = [one.splitlines() for one in re.split(r"^[-+─╰╯]+$", "\n".join(lines), flags=re.MULTILINE) if one.strip()]
    wrong, *more = sections[:-1] or [["the options cannot be read"]]
    end = wrong.index("", 1) if "" in wrong[1:] else len(wrong)
    said = [[line for line in wrong[:end] if not line.startswith(" " * 8)]]
    said += [one[:3] for one in more if any(line.startswith(" " * 8) for line in one)]
    texts = [" ".join(" ".join(one).split()).rstrip(".") for one in said]
    return "; ".join([texts[0], *(one[0].lower() + one[1:] for one in texts[1:])])


def sentence(error: BaseException) -> str:
    """Say what went wrong in one line, with the remedy."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ImportError) and (module := (cause.name or "").split(".")[0]) in EXTRAS:
            return f"{module} is not installed; pip install 'dp-ensemble-env[{EXTRAS[module]}]' brings it."
        cause = cause.__cause__ or cause.__context__
    text = " ".join(str(error).split())
    if isinstance(error, OSError) and error.strerror:
        what = f"cannot use {error.filename}: " if error.filename else ""
        return f"{what}{error.strerror.lower()}; check the name and the free space."
    if isinstance(error, ArithmeticError):
        return f"these data are beyond what can be computed ({text}); check their unit."
    return text or type(error).__name__
