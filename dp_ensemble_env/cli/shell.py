"""The shell around every command: its parser, its errors, and Ctrl-C.

An error becomes one sentence on stderr and the exit status 2. Ctrl-C gives the status 130 and one sentence that says
what is kept.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

PROGRAM = "dp-ensemble"
#: Which extra brings a module that may be missing.
EXTRAS = {
    "matplotlib": "plots",
    "pygame": "render",
    "PIL": "render",
    "pyarrow": "data",
    "openpyxl": "excel",
    "simbench": "simbench",
    "stable_baselines3": "rl",
    "sb3_contrib": "rl",
    "torch": "rl",
    "tensorboard": "rl",
    "safetensors": "rl",
    "optuna": "tune",
    "minari": "minari",
    "ray": "ray",
    "opendp": "opendp",
    "cvxpy": "test",
}


class UsageError(ValueError):
    """The command line cannot be understood."""


# ------------------------------------------------------------------ parsing
class Formatter(argparse.HelpFormatter):
    """Help of at most 100 columns: a short usage line, wrapped paragraphs, and the default of every option."""

    def __init__(self, prog: str, **settings: Any) -> None:
        super().__init__(prog, **{"max_help_position": 26, **settings})
        self._width = min(self._width, 98)

    def add_usage(self, usage: str | None, actions: Iterable[argparse.Action], groups: Any, prefix: Any = None) -> None:
        """Show what must be given, and leave the options to their list."""
        needed = [action for action in actions if not action.option_strings or action.required]
        super().add_usage(usage or self._short(needed), needed, groups, prefix)

    def _short(self, needed: list[argparse.Action]) -> str:
        words = [self._format_actions_usage([action], []) for action in needed]
        return " ".join(["%(prog)s", *words, "[options]"])

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        parts = text.strip().split("\n\n")  # indented lines stay as they are
        wrap = [part if "\n " in f"\n{part}" else textwrap.fill(" ".join(part.split()), width) for part in parts]
        return "\n\n".join(wrap)

    def _get_help_string(self, action: argparse.Action) -> str:
        text, default = action.help or "", action.default
        if default in (None, False, argparse.SUPPRESS) or default == [] or "(default" in text:
            return text
        shown = " ".join(map(str, default)) if isinstance(default, (list, tuple)) else f"{default}".replace("%", "%%")
        return f"{text} (default {shown})"


class Parser(argparse.ArgumentParser):
    """A parser that explains itself: no abbreviations, "did you mean" for every name, two examples in its help.

    Parameters
    ----------
    examples : sequence of str
        Command lines, shown at the end of the help.
    """

    def __init__(self, *, examples: Sequence[str] = (), **settings: Any) -> None:
        if examples:
            settings["epilog"] = "examples:\n" + "\n".join(f"  {line}" for line in examples)
        settings.setdefault("formatter_class", Formatter)
        super().__init__(**{"allow_abbrev": False, **settings})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse, and refuse what is unknown."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(self._explain(unknown[0]))
        return found, []

    def _explain(self, word: str) -> str:
        name = word.split("=")[0]
        if not name.startswith("-"):
            return f"{word!r} is one word too many; see {self.prog} --help"
        hint = did_you_mean(name, self._option_string_actions, f"see {self.prog} --help")
        return f"there is no option {name}; {hint}"

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            hint = did_you_mean(str(value), map(str, action.choices), "")
            names = ", ".join(map(str, action.choices))
            raise argparse.ArgumentError(action, f"does not know {value!r}{hint and f' ({hint})'}; choose {names}")

    def error(self, message: str) -> NoReturn:
        """Raise a sentence instead of printing the usage."""
        raise UsageError(message)


def did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return a suggestion for a misspelt name."""
    close = get_close_matches(name, list(known), 1)
    return f"did you mean {close[0]!r}?" if close else otherwise


# ------------------------------------------------------------------ errors
def sentence(error: BaseException) -> str:
    """Say what went wrong in one line, with the remedy."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ImportError) and (cause.name or "").split(".")[0] in EXTRAS:
            module = str(cause.name).split(".")[0]
            return f"{module} is not installed; pip install 'dp-ensemble-env[{EXTRAS[module]}]' brings it."
        cause = cause.__cause__ or cause.__context__
    text = " ".join(str(error).split())
    if isinstance(error, OSError) and error.strerror and error.filename:
        text = f"cannot use {error.filename}: {error.strerror.lower()}; check the name."
    elif isinstance(error, OSError) and error.strerror:
        text = f"{error.strerror.lower()}; check the disk and the files that were named."
    elif isinstance(error, ArithmeticError):
        text = f"these data are beyond what can be computed ({text}); check their unit."
    return text or type(error).__name__


@contextlib.contextmanager
def keeping(words: Callable[[], str]) -> Iterator[None]:
    """Say what is kept when the block is interrupted."""
    try:
        yield
    except KeyboardInterrupt as stop:
        raise KeyboardInterrupt(*stop.args or (words(),)) from None


def guard(name: str, work: Callable[[], int]) -> int:
    """Run a command; return its exit status, also after an error or Ctrl-C."""

    def complain(text: str) -> None:
        with contextlib.suppress(OSError):
            print(f"{name}: {text}", file=sys.stderr, flush=True)

    def note(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        if issubclass(category, UserWarning):
            complain(" ".join(str(message).split()))

    with warnings.catch_warnings():
        warnings.showwarning = note
        try:
            status = work()
            sys.stdout.flush()
            return status
        except BrokenPipeError:  # the reader of our output has gone
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            return 1
        except KeyboardInterrupt as stop:
            complain("; ".join(("interrupted", *map(str, stop.args))) + ".")
            return 130
        except (ValueError, OSError, ImportError, ArithmeticError) as error:
            complain(sentence(error))
            return 2


def execute(build: Callable[[], Parser], run: Callable[[argparse.Namespace], int], argv: list[str] | None) -> int:
    """Parse the words of one command and run it; `run` finds them in ``args.words``."""
    parser = build()
    words = sys.argv[1:] if argv is None else argv

    def work() -> int:
        args = parser.parse_args(words)
        args.words, args.command_line = words, shlex.join([*parser.prog.split(), *words])
        return run(args)

    return guard(parser.prog, work)
