"""A Croissant description of a data set: JSON-LD that machines read, ``croissant.json`` beside the data.

`Croissant <https://docs.mlcommons.org/croissant/docs/croissant-spec.html>`_ (version 1.0, by MLCommons) builds on
schema.org. It has no reader for HDF5, so the file is described by name, size and digest, and what it holds by two
tables that stand in the description itself: the columns of an episode, and the scores.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dp_ensemble_env import __version__
from dp_ensemble_env.tools.files import atomic_write

NAME = "croissant.json"
CONFORMS = "http://mlcommons.org/croissant/1.0"
#: The vocabulary, as the specification prints it.
CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}
#: What each column of an episode holds; of T steps.
COLUMNS = {
    "observations": "what the agent sees: shares of the loads, part of the horizon left, prices, context (T + 1 rows)",
    "actions": "what it does, after exploration (T rows)",
    "rewards": "dollars per load of each step (T rows)",
    "terminations": "true at the horizon alone (T rows)",
    "truncations": "always false (T rows)",
    "infos": "parts of the reward, power and context by name (T + 1 rows)",
}


def describe_folder(
    folder: Path, dataset_id: str, description: str, episodes: int, references: tuple[float, float], score: float
) -> dict[str, Any]:
    """Return the description of the data set in a folder.

    Parameters
    ----------
    folder : path
        Its files are described by name, size and SHA-256.
    dataset_id, description : str
    episodes : int
    references : (float, float)
        Exact expected returns of the uncontrolled loads and of the optimum.
    score : float
        Of the episodes: 0 is uncontrolled, 100 the optimum.
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
            _table("columns", "What the file holds of each episode.", ("name", "meaning"), list(COLUMNS.items())),
            _table("scores", "What the episodes earn.", ("name", "value"), list(facts.items())),
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
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "description": words,
        "field": [
            {
                "@type": "cr:Field",
                "@id": f"{name}/{one}",
                "name": f"{name}/{one}",
                "dataType": "sc:Float" if number else "sc:Text",
            }
            for one, number in zip(fields, numbers, strict=True)
        ],
        "data": [{f"{name}/{one}": value for one, value in zip(fields, row, strict=True)} for row in rows],
    }


def write_description(folder: Path, content: Mapping[str, Any]) -> None:
    """Write a description beside what it describes."""
    with atomic_write(folder / NAME) as stream:
        json.dump(content, stream, indent=1, ensure_ascii=False)
        stream.write("\n")
