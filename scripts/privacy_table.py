"""Measure what a participant's protection is worth on every scenario, and write the table of docs/privacy.md.

    python scripts/privacy_table.py measure first rest      # adds rows to docs/privacy.jsonl; resumes where it stopped
    python scripts/privacy_table.py write                   # writes the table between its markers

A row is one release on one test instance: simulated participants, a plan on the release, its score deployed on the truth
as a tilt, the score of the plan without data, and that of the plan on the sample's own estimate.
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

from dp_ensemble_env import scenarios
from dp_ensemble_env.experiments.studies.frontier import deployed_score
from dp_ensemble_env.experiments.studies.regret import sample_matrix
from dp_ensemble_env.privacy import mechanism
from dp_ensemble_env.privacy.mechanisms.public import public_guess
from dp_ensemble_env.scenarios.problem import draw_release

DOCS = Path(__file__).resolve().parent.parent / "docs"
RECORD, PAGE = DOCS / "privacy.jsonl", DOCS / "privacy.md"
BEGIN, END = "<!-- table: scripts/privacy_table.py -->", "<!-- end of table -->"
LARGE = ("campus-day",)  # half a minute a release
#: Rounds: participants, epsilon, instances and releases of each.
ROUNDS = {
    "first": [(1000, 1.0, 5, 1)],
    "rest": [(1000, 1.0, 10, 4)],
    "elsewhere": [(300, 1.0, 5, 1), (300, 4.0, 5, 1), (1000, 4.0, 5, 1)],
    "small": [(1000, 0.5, 5, 1), (100, 1.0, 5, 1), (50, 1.0, 5, 1), (5, 1.0, 5, 1)],
}
COLUMNS = ((1000, 1.0), (300, 1.0), (300, 4.0), (1000, 4.0))


def cells(words: list[str]) -> Iterator[tuple[str, int, int, float, int]]:
    """Yield scenario, instance, participants, epsilon and release seed."""
    named = [word for word in words if word in scenarios.names()]
    for word in words:
        for participants, epsilon, instances, releases in ROUNDS.get(word, []):
            for seed in range(releases):
                for instance in range(instances):
                    for name in named or [name for name in scenarios.names() if name not in LARGE]:
                        yield name, instance, participants, epsilon, seed


def measure(words: list[str]) -> None:
    """Add the rows that are missing."""
    known = {tuple(row["cell"]) for row in rows()}
    for cell in cells(words):
        if cell in known:
            continue
        name, instance, participants, epsilon, seed = cell
        model = scenarios.make(name, instance=instance, split="test")
        spec, begin = f"adaptive:epsilon={epsilon:g},participants={participants}", time.process_time()
        release = draw_release(spec, model, seed)
        row: dict[str, Any] = {"cell": cell, "score": deployed_score(model, release)}
        row["seconds"] = round(time.process_time() - begin, 2)
        row["without_data"] = deployed_score(model, public_guess(model))
        row["sample"] = deployed_score(model, sample_matrix(mechanism(spec).data_of(model), model.guess))
        with RECORD.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def rows() -> list[dict[str, Any]]:
    """Read what was measured."""
    return [json.loads(line) for line in RECORD.read_text(encoding="utf-8").splitlines()] if RECORD.exists() else []


def table() -> str:
    """Return the table: mean / worst score of the releases, and how many there are."""
    found: dict[tuple[str, int, float], list[dict[str, Any]]] = defaultdict(list)
    for row in rows():
        name, _, participants, epsilon, _ = row["cell"]
        found[name, participants, epsilon].append(row)
    heads = [f"N = {n:,}, ε = {epsilon:g}" for n, epsilon in COLUMNS]
    lines = [f"| scenario | without data | sample | {' | '.join(heads)} |", "|---" * (3 + len(heads)) + "|"]
    for name in sorted({name for name, _, _ in found}, key=scenarios.names().index):
        first = found[name, *COLUMNS[0]]
        texts = [f"{mean(row[key] for row in first):.1f}" for key in ("without_data", "sample")]
        for column in COLUMNS:
            scores = [row["score"] for row in found[name, *column]]
            texts.append(f"{mean(scores):.1f} / {min(scores):.1f} ({len(scores)})" if scores else "–")
        lines.append(f"| {name} | {' | '.join(texts)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, or write the table."""
    command, *words = sys.argv[1:] or ["write"]
    if command == "measure":
        measure(words)
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
