"""The notebooks: one source each, a Python file in cells, from which the ``.ipynb`` with its outputs is written.

``make notebooks`` runs every ``docs/notebooks/*.py``, which is also a program of its own, and writes the notebook
beside it. A test keeps the two in step. Nothing of Jupyter is needed.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"


def cells(text: str) -> list[tuple[str, str]]:
    """Split a file in the percent format into pairs of kind, "markdown" or "code", and source."""
    found = []
    for mark, body in re.findall(r"^# %%(.*)\n((?:(?!# %%).*\n?)*)", text, flags=re.MULTILINE):
        kind = "markdown" if "[markdown]" in mark else "code"
        if kind == "markdown":
            body = re.sub(r"^# ?", "", body, flags=re.MULTILINE)
        found.append((kind, body.strip()))
    return found


def run(sources: list[tuple[str, str]]) -> list[list[dict[str, Any]]]:
    """Execute the code cells one after the other; return the outputs of every cell."""
    os.environ.setdefault("COLUMNS", "80")
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    namespace: dict[str, Any] = {"__name__": "notebook"}
    found = []
    for kind, source in sources:
        outputs: list[dict[str, Any]] = []
        if kind == "code":
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                exec(compile(source, "<cell>", "exec"), namespace)
            if said.getvalue():
                outputs.append({"output_type": "stream", "name": "stdout", "text": lines(said.getvalue())})
            for number in plt.get_fignums():
                stream = io.BytesIO()
                plt.figure(number).savefig(
                    stream, format="png", dpi=100, bbox_inches="tight", metadata={"Software": ""}
                )
                picture = base64.b64encode(stream.getvalue()).decode()
                data = {"image/png": picture, "text/plain": ["<Figure>"]}
                outputs.append({"output_type": "display_data", "metadata": {}, "data": data})
            plt.close("all")
        found.append(outputs)
    return found


def lines(text: str) -> list[str]:
    """Split a text as notebooks do, the ends of the lines kept."""
    return text.splitlines(keepends=True)


def notebook(sources: list[tuple[str, str]], outputs: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """Return the notebook, format 4.5."""
    made, count = [], 0
    for i, ((kind, source), mine) in enumerate(zip(sources, outputs, strict=True)):
        cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{i}", "metadata": {}, "source": lines(source)}
        if kind == "code":
            count += 1
            cell |= {"execution_count": count, "outputs": mine}
        made.append(cell)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def execute(path: Path) -> dict[str, Any]:
    """Run a source in an empty folder and return its notebook."""
    sources = cells(path.read_text(encoding="utf-8"))
    home = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            return notebook(sources, run(sources))
        finally:
            os.chdir(home)


def main() -> int:
    """Write all notebooks, or those that are named."""
    chosen = [FOLDER / f"{name}.py" for name in sys.argv[1:]] or sorted(FOLDER.glob("*.py"))
    for path in chosen:
        made = json.dumps(execute(path), indent=1, ensure_ascii=False) + "\n"
        path.with_suffix(".ipynb").write_text(made, encoding="utf-8")
        print(path.with_suffix(".ipynb"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
