"""Record the signals of the scenarios: ``python scripts/signals.py [NAME ...]``.

Directions and units of the default action mode come from eight instances of each scenario that nobody plays. They are
kept as data in ``dp_ensemble_env/envs/signals.json``; run this when a scenario is added or gets a new version.
"""

from __future__ import annotations

import json
import sys

from dp_ensemble_env import scenarios
from dp_ensemble_env.envs import signals


def main(names: list[str]) -> None:
    """Compute the entries of the named scenarios, by default of all built-in ones, and write the file."""
    content = json.loads(signals.RECORD.read_text(encoding="utf-8")) if signals.RECORD.exists() else {}
    for name in names or scenarios.BUILT_IN:
        content[name] = signals.entry_of(name)
        print(f"{name}: {len(content[name]['directions'])} signals, digest {content[name]['digest']}")
    lines = [f"{json.dumps(name)}: {json.dumps(content[name], separators=(',', ':'))}" for name in content]
    signals.RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
