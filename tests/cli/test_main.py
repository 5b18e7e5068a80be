"""The entry point: help, misspelt words, missing extras, errors of one sentence, Ctrl-C."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys

import pytest

from dp_ensemble_env.cli import main
from dp_ensemble_env.cli.main import EXTRAS, command_class, names, parse
from dp_ensemble_env.cli.options import keeping

entry = importlib.import_module("dp_ensemble_env.cli.main")


@pytest.mark.parametrize("name", names())
def test_help_fits_80_columns_and_its_examples_are_understood(name, capsys):
    assert main([*name.split(), "--help"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    examples = [line.split()[1:] for line in text.replace("\\\n", " ").splitlines() if line.startswith("  dp-ensemble")]
    assert examples
    for words in examples:
        assert words[: len(name.split())] == name.split()
        parse(command_class(name), words[len(name.split()) :], name)


def test_overview_names_every_command_by_subject(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    assert re.findall(r"^(\w+):$", text, flags=re.MULTILINE) == ["benchmark", "privacy", "meters"]
    assert main([]) == 2 and capsys.readouterr().err == text
    assert main(["--version"]) == 0 and capsys.readouterr().out.startswith("dp-ensemble 1.")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["trian"], "there is no command 'trian'; did you mean 'train'?"),
        (["--verson"], "did you mean '--version'?"),
        (
            ["validate", "--episods", "5"],
            "Unrecognized options: --episods, 5; perhaps you meant: --episodes INT; see dp-ensemble validate --help",
        ),
        (
            ["validate", "--spikes", "kep"],
            "'kep' for argument '--spikes'. Expected one of ('error', 'missing', 'keep')",
        ),
        (["validate", "--episodes", "many"], "--episodes: 'many' is not a whole number; see dp-ensemble"),
        (["validate", "--season", "06-15"], "--season"),
        (["validate", "--penalty", "nan"], "--penalty must be a finite number, got nan."),
        (["evaluate", "standard", "--population", "x"], "'x' is not mean-field or single or a whole number; see"),
        (["evaluate"], "evaluate: Missing from dp-ensemble evaluate: AGENT; see dp-ensemble evaluate --help"),
        (["privacy", "release"], "release: Missing from dp-ensemble privacy release: --output PATH --ledger PATH; see"),
    ],
)
def test_what_cannot_be_understood_is_one_sentence(words, said, capsys):
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1 and said in err and err.startswith("dp-ensemble")


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (ValueError("two\nlines"), 2, ": two lines\n"),
        (FileNotFoundError(2, "No such file", "a.csv"), 2, ": cannot use a.csv: no such file; check the name"),
        (ModuleNotFoundError("No module named 'minari'", name="minari"), 2, "pip install 'dp-ensemble-env[minari]'"),
        (OverflowError("too big"), 2, "beyond what can be computed (too big); check their unit."),
        (KeyboardInterrupt(), 130, "dp-ensemble scenarios: interrupted.\n"),
        (KeyboardInterrupt("half is kept"), 130, "dp-ensemble scenarios: interrupted; half is kept.\n"),
    ],
)
def test_what_is_raised_becomes_a_status(error, status, words, capsys, monkeypatch):
    def work(command, words):
        raise error

    monkeypatch.setattr(entry, "run", work)
    assert main(["scenarios"]) == status
    assert words in capsys.readouterr().err


def test_bugs_are_not_hidden(monkeypatch):
    monkeypatch.setattr(entry, "run", lambda command, words: 1 / len(entry))
    with pytest.raises(TypeError):
        main(["scenarios"])


def test_the_innermost_says_what_is_kept():
    with pytest.raises(KeyboardInterrupt, match="inner"), keeping(lambda: "outer"), keeping(lambda: "inner"):
        raise KeyboardInterrupt


def test_help_is_quick_and_needs_no_extra(tmp_path):
    """Modules of the extras are hidden; the overview imports none of the large libraries."""
    code = f"""
import signal, sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in {sorted(EXTRAS)}:
            raise ModuleNotFoundError(f'No module named {{name!r}}', name=name)
sys.meta_path.insert(0, Hide())
from dp_ensemble_env.cli import main
from dp_ensemble_env.cli.main import names
assert main(['--help']) == 0 and not {{'numba', 'torch', 'matplotlib', 'scipy'}} & set(sys.modules)
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
for name in {names()}:
    assert main([*name.split(), '--help']) == 0
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
