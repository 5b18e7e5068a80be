"""One mistake, told to a caller in Python's words and to the user of a command in those of the command line."""

from __future__ import annotations

import re
from contextvars import copy_context
from dataclasses import fields, is_dataclass

import pytest
from helpers import ROOT

from dp_ensemble_env.agents import make_agent
from dp_ensemble_env.cli import main
from dp_ensemble_env.cli.main import command_class, names
from dp_ensemble_env.envs import EnsembleEnv
from dp_ensemble_env.experiments import backends
from dp_ensemble_env.scenarios.problem import ProblemSettings
from dp_ensemble_env.tools.validation import ON_COMMAND_LINE, option


def told(call):
    with pytest.raises(ValueError) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize(
    ("header", "settings", "python", "typed"),
    [
        ("time,x", {}, "; pass unit= (one of", "; pass --unit (one of"),
        ("time,x", {"unit": "kW"}, "; pass stamp='start' or stamp='end'.", "; pass --stamp start or --stamp end."),
        ("time,Temp F", {}, "; pass column='Temp F' to read", "; pass --column 'Temp F' to read"),
        ("time,kW", {"meter_id": "A"}, "; leave meter_id= out, or use col", "; leave --meter-id out, or use --col"),
        ("time,kWh", {"unit": "kW"}, "which unit='kW' contradicts", "which --unit kW contradicts"),
        ("start,kW", {"zeros": "error"}, "zeros='missing' or zeros='keep'.", "--zeros missing or --zeros keep."),
        ("time,kW", {"limits": 1e-9}, "raise all limits with limits=2.", "raise all limits with --limits 2."),
        (
            "",
            {"levels": 5},
            "levels=; leave it out, or use scenario='campus",
            "--levels; leave it out, or use --scenario",
        ),
        ("", {"shed_floor": 9.0}, "shed_floor= says how", "--shed-floor says how"),
    ],
)
def test_what_is_wrong_with_a_problem(header, settings, python, typed, tmp_path, capsys):
    if header:
        settings = {"meter": str(tmp_path / "meter.csv"), **settings}
        (tmp_path / "meter.csv").write_text("\n".join([header, *(f"2024-07-01 0{i}:00,{i}" for i in range(4))]))
    words = [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    assert main(["evaluate", "standard", *words]) == 2
    assert typed in capsys.readouterr().err
    assert python in told(lambda: ProblemSettings.of(ProblemSettings(**settings)).build())


def test_what_is_wrong_with_an_agent(capsys):
    assert main(["evaluate", "standard", "--action", "price"]) == 2
    assert "'standard' needs tilt actions, not price; use --action tilt.\n" in capsys.readouterr().err
    env = EnsembleEnv("call", action="price")
    assert "not price; use action='tilt' (Call-tilt-v" in told(lambda: make_agent("standard", env))


def test_flags_alternatives_and_cells(monkeypatch):
    """A cell is told in the words of its agent's text, `rolling:action=tilt`, in this process as in another one."""
    monkeypatch.setattr(backends, "compute", lambda cell, supplies: option("action", cell))

    def typed():
        ON_COMMAND_LINE.set(True)
        cells = backends.Place().run(["tilt"], None, None, print)
        return option("resume", True), option("column", ("a b", "c"), "sum"), option("id_column"), *cells

    assert copy_context().run(typed) == ("--resume", "--column 'a b' c or --column sum", "--id-column", "action='tilt'")
    assert (option("resume", True), option("k", 1, 2)) == ("resume=True", "k=1 or k=2")


def test_options_that_messages_name_exist():
    def names_of(one):
        return {f.name for f in fields(one)}.union(*(names_of(x) for f in fields(one) if is_dataclass(x := f.default)))

    there = set().union(*(names_of(command_class(name)) for name in names()))
    paths = [*(ROOT / "dp_ensemble_env").rglob("*.py"), *(ROOT / "agents").rglob("*.py")]
    named = {x for path in paths for x in re.findall(r"\boption\([\"'](\w+)", path.read_text(encoding="utf-8"))}
    assert len(named) > 20 and not named - there
