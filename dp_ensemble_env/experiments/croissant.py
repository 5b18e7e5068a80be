"""A Croissant description of a data set: JSON-LD that machines read, ``croissant.json`` beside the data.

`Croissant <https://docs.mlcommons.org/croissant/docs/croissant-spec.html>`_ (version 1.0, by MLCommons) builds on
schema.org. It has no reader for HDF5, so the file is described by name, size and digest, and its content by two tables:
the columns of an episode, and the scores.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dp_ensemble_env import __version__

NAME = "croissant.json"
CONFORMS = "http://mlcommons.org/croissant/1.0"
#: The vocabulary, as the specification prints it.
CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
}
_TERMS = (
    "citeAs column equivalentProperty extract field fileObject fileProperty fileSet format includes isLiveDataset "
    "jsonPath key md5 parentField path recordSet references regex repeated replace samplingRate separator source "
    "subField transform"
)
CONTEXT |= {term: f"cr:{term}" for term in _TERMS.split()}
#: What each column of an episode holds; of T steps.
COLUMNS = {
    "observations": "observations: shares of the loads, fraction of the horizon left, prices, context (T + 1 rows)",
    "actions": "actions, after exploration (T rows)",
    "rewards": "dollars per load of each step (T rows)",
    "terminations": "true at the horizon alone (T rows)",
    "truncations": "always false (T rows)",
    "infos": "parts of the reward, power and context by name (T + 1 rows)",
}


def describe_folder(
    folder: Path, dataset_id: str, description: str, episodes: int, references: tuple[float, float], score: float
) -> dict[str, Any]:
    """Return the description of the data set in a folder, whose files are named with size and SHA-256.

    The references are the exact expected returns of the uncontrolled loads and of the optimum; `score` is that of the
    episodes.
    """
    facts = {
        "episodes": float(episodes),
        "reference return, uncontrolled": references[0],
        "reference return, optimum": references[1],
        "score of the episodes": score,
    }
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS,
        "name": dataset_id,
        "description": description,
        "version": __version__,
        "keywords": ["offline reinforcement learning", "demand response", "Minari"],
        "isLiveDataset": False,
        "distribution": [
            _file(file, folder) for file in sorted(folder.rglob("*")) if file.is_file() and file.name != NAME
        ],
        "recordSet": [
            _table("columns", "Contents of the file for each episode.", ("name", "meaning"), list(COLUMNS.items())),
            _table("scores", "Returns of the episodes.", ("name", "value"), list(facts.items())),
        ],
    }


def _file(file: Path, folder: Path) -> dict[str, Any]:
    content = file.read_bytes()
    kinds = {".hdf5": "application/x-hdf5", ".json": "application/json"}
    name = file.relative_to(folder).as_posix()
    return {
        "@type": "cr:FileObject",
        "@id": name,
        "name": name,
        "contentUrl": name,
        "contentSize": f"{len(content)} B",
        "encodingFormat": kinds.get(file.suffix, "application/octet-stream"),
        "sha256": hashlib.sha256(content).hexdigest(),
    }


def _table(name: str, words: str, fields: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Describe a table that stands in the description itself."""
    numbers = [all(isinstance(row[i], float) for row in rows) for i in range(len(fields))]
    names = [f"{name}/{one}" for one in fields]
    columns = [
        {"@type": "cr:Field", "@id": one, "name": one, "dataType": "sc:Float" if number else "sc:Text"}
        for one, number in zip(names, numbers, strict=True)
    ]
    data = [dict(zip(names, row, strict=True)) for row in rows]
    about = {"@type": "cr:RecordSet", "@id": name, "name": name, "description": words}
    return {**about, "field": columns, "data": data}
