"""The tool that changes the code to see whether the tests notice: what it changes, and which tests it asks."""

from __future__ import annotations

import ast

import pytest
from tools import mutants


def changes(text):
    """List the changes of a piece of code."""
    tree = ast.parse(text)
    return sorted(
        mutants.Mutant("a.py", text, *found).change for found in mutants.places(tree) if mutants.changed(found[0])
    )


def test_operators_constants_and_calls_are_changed_and_words_are_not():
    code = 'def f(x: "int" = 1) -> "2":\n    """Return 3."""\n    if not x > 0 or x < -2:\n        raise Error(x + 1)\n'
    assert changes(code) == sorted(
        ["1 -> 2", "not x > 0 -> x > 0", "x > 0 -> x >= 0", "0 -> 1", "x < -2 -> x <= -2", "-2 -> 2", "2 -> 3",
         "not x > 0 or x < -2 -> not x > 0 and x < -2"]
    )  # fmt: skip
    assert changes("y = np.maximum(a * 0.5, b // c).max()") == sorted(
        ["np.maximum(a * 0.5, b // c).max -> np.maximum(a * 0.5, b // c).min", "np.maximum -> np.minimum",
         "a * 0.5 -> a / 0.5", "0.5 -> 1.0", "b // c -> b * c"]
    )  # fmt: skip
    assert changes("z = math.floor(self.floor)") == ["math.floor -> math.ceil"]


def test_the_changed_module_is_the_old_one_but_for_the_change():
    text = "é = 1\nx = (a +\n     b) * 2  # why\n"
    (found,) = [one for one in mutants.places(ast.parse(text)) if mutants.changed(one[0]) and one[0].lineno == 2
                and isinstance(getattr(one[0], "op", None), ast.Add)]  # fmt: skip
    mutant = mutants.Mutant("a.py", text, *found)
    assert mutant.source == "é = 1\nx = ((a - b)) * 2  # why\n" and list(mutant.lines) == [2, 3]


def test_equivalent_mutants_are_changes_of_the_code_as_it_is():
    """A line that was rewritten takes its entry along, or loses it."""
    listed = mutants.equivalents()
    assert len(set(listed)) == len(listed)
    there = {(one.module, one.text, one.change) for one in mutants.mutants(sorted({name for name, _, _ in listed}))}
    assert set(listed) <= there, set(listed) - there


def test_a_mutant_asks_the_tests_that_pass_over_its_line_short_ones_first(monkeypatch):
    monkeypatch.setattr(mutants, "_is_noted", lambda name, notes: name in notes)
    (mutant, *_) = mutants.mutants(["chain/event.py"])
    line = mutant.lines[0]
    notes = {"tests/test_event.py": None}
    passed = [(9.0, "tests/test_event.py::b"), (1.0, "tests/test_event.py::a"), (0.1, "tests/x.py::c")]
    seen = {"chain/event.py": {line: passed}}
    assert mutants.tests_of(mutant, seen, notes) == [
        "tests/test_event.py::a",
        "tests/test_event.py::b",
        "tests/x.py::c",
    ]
    assert mutants.tests_of(mutant, {}, notes) == ["tests/test_event.py"]  # compiled, or a constant of the module
    assert mutants.tests_of(mutant, seen, {})[-1] == "tests/test_event.py"


def test_lines_are_found_again_in_a_module_that_was_changed():
    now = (mutants.PACKAGE / "control/cost.py").read_text(encoding="utf-8").splitlines()
    moved = mutants._moved("control/cost.py", [*now[:10], "another line", *now[12:]])
    assert moved[10] == 10 and 11 not in moved and moved[12] == 13 and moved[len(now) - 1] == len(now)
    assert mutants._moved("control/cost.py", now)[7] == 7


def test_every_module_and_test_file_that_is_named_is_there():
    assert all((mutants.PACKAGE / name).is_file() for name in mutants.MODULES)
    assert all((mutants.ROOT / name).is_file() for name in mutants._tests())
    with pytest.raises(SystemExit):
        mutants.main(["--modules", "no.py"])
