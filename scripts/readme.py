"""Run the README as a new user would: install, then every command and example; CI does it on three systems.

It installs into the environment of the Python that runs it, so give it a fresh one.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: What a user types, and what runs it in this environment.
PROGRAMS = {"pip": [sys.executable, "-m", "pip"], "dp-ensemble": [sys.executable, "-m", "dp_ensemble_env"]}


def main() -> int:
    """Run the blocks in their order; the targets of make are CI's other jobs."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shell = "".join(re.findall(r"```bash\n(.*?)```", text, flags=re.DOTALL))
    commands = [words for line in shell.splitlines() if (words := shlex.split(line, comments=True))]
    with tempfile.TemporaryDirectory() as empty:
        for words in sorted(commands, key=lambda words: words[0] != "pip"):
            if words[0] in PROGRAMS:
                print("$", *words, flush=True)
                subprocess.run([*PROGRAMS[words[0]], *words[1:]], cwd=ROOT if words[0] == "pip" else empty, check=True)
        shown = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, flags=re.DOTALL)
        program = Path(empty) / "readme_examples.py"
        program.write_text("\n".join(code for code, _ in shown), encoding="utf-8")
        utf8 = os.environ | {"PYTHONUTF8": "1"}
        said = subprocess.run(
            [sys.executable, program], cwd=empty, env=utf8, capture_output=True, text=True, encoding="utf-8", check=True
        ).stdout
    print(said)
    listed = subprocess.run([sys.executable, "-m", "pip", "list"], capture_output=True, text=True, check=True).stdout
    cuda = re.findall(r"^(?:nvidia|cuda)\S*", listed, flags=re.MULTILINE)
    wrong = said != "".join(promised for _, promised in shown)
    if wrong or cuda:
        print("The README prints something else." if wrong else f"CUDA was installed: {cuda}", file=sys.stderr)
    return int(wrong or bool(cuda))


if __name__ == "__main__":
    sys.exit(main())
