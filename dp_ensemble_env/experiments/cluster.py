"""Cells as Ray tasks.

The driver ships what the tasks need as one object in Ray's store: the project's code, the models of meter files and
the text of imported files. The nodes need the third-party packages, but neither this project nor a disk in common.
The code is unpacked once per node into a folder named after its content, so compiled functions are found again.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import io
import logging
import os
import pickle
import shutil
import signal
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

#: Times that Ray runs a cell again when its worker or its node dies.
RETRIES = 3
#: One thread per cell: cells run side by side, and results do not depend on the number of cores. This module travels
#: to the nodes by value, so it names the variables itself.
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
_ready: dict[str, Any] = {}


# ------------------------------------------------------------------ driver
def drive(pipe: Connection, cells: list[Any], supplies: Any, address: str | None, jobs: int | None, log: str) -> None:
    """Connect to the cluster, keep it busy, and send every row through the pipe; meant to be a process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with open(log, "ab", buffering=0) as stream:  # Ray's own messages, and its last words
        for number in (1, 2):
            os.dup2(stream.fileno(), number)
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray

    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    settings: dict[str, Any] = {"num_cpus": jobs, "include_dashboard": False} if address is None else {}
    try:
        ray.init(
            address=address or "local",
            logging_level=logging.ERROR,
            log_to_driver=False,
            runtime_env={"env_vars": ONE_THREAD},
            **settings,
        )
        pipe.send(("connected", None))
        for row in _submit(ray, cells, pack(supplies), pipe):
            pipe.send(("row", row))
        pipe.send(("end", None))
    except (BrokenPipeError, ConnectionResetError):  # nobody listens any more
        pass
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        where = "start Ray here" if address is None else f"work with the Ray cluster at {address}"
        words = str(error).strip().splitlines() or [type(error).__name__]
        with contextlib.suppress(OSError):
            pipe.send(("lost", f"cannot {where}: {words[0].rstrip('.')}"))
    finally:
        ray.shutdown()


def _submit(ray: Any, cells: list[Any], package: dict[str, Any], pipe: Connection) -> Iterator[Any]:
    """Yield the rows; no more tasks are submitted at a time than keep the cluster busy."""
    remote = ray.remote(num_cpus=1, max_retries=RETRIES)(run_shipped)
    shared, queue = ray.put(package), iter(cells)
    flying: dict[Any, Any] = {}
    counted, window, warned = -10.0, 0, False
    while not pipe.poll():  # nothing is ever sent this way: there is something to read when the other end is closed
        if time.monotonic() - counted > 5:  # nodes come and go
            cpus = int(ray.cluster_resources().get("CPU", 0))
            counted, window = time.monotonic(), 8 + 2 * cpus
            if (cpus == 0) is not warned:
                warned = not warned
                pipe.send(("note", "the cluster has no CPUs; waiting for nodes" if warned else "there are nodes again"))
        while len(flying) < window and (cell := next(queue, None)) is not None:
            flying[remote.remote(shared, pickle.dumps(cell))] = cell
        if not flying:
            return
        done, _ = ray.wait(list(flying), num_returns=1, timeout=1.0)
        if done:
            done, _ = ray.wait(list(flying), num_returns=len(flying), timeout=0)
        for task in done:
            cell = flying.pop(task)
            try:
                yield ray.get(task)
            except (ray.exceptions.RuntimeEnvSetupError, ray.exceptions.RaySystemError):
                raise
            except ray.exceptions.RayError as error:
                from dp_ensemble_env.experiments.runner import lost

                yield lost(cell, f"{type(error).__name__}: {' '.join(str(error).split())[:400]}")


def pack(supplies: Any) -> dict[str, Any]:
    """Return what a node needs: the code as a zip file, its digest, and the pickled supplies."""
    files: dict[str, Path] = {}
    for package in ("dp_ensemble_env", "dp_ensemble_env.agents"):  # in the repository the agents' folder is elsewhere
        home = Path(str(importlib.import_module(package).__file__)).parent
        names = [path for path in home.rglob("*") if path.suffix in (".py", ".json", ".toml")]
        files |= {f"{package.replace('.', '/')}/{path.relative_to(home)}": path for path in names}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name), files[name].read_bytes())
    code = buffer.getvalue()
    return {"code": code, "digest": hashlib.sha256(code).hexdigest()[:32], "supplies": pickle.dumps(supplies)}


# ------------------------------------------------------------------ nodes
def run_shipped(package: dict[str, Any], cell: bytes) -> Any:
    """Compute a cell with the code that was shipped. This function travels by value: it may rely on nothing of ours."""
    import ray

    digest = package["digest"]
    if digest not in _ready:
        sys.path.insert(0, unpack(package["code"], digest))
        _ready[digest] = pickle.loads(package["supplies"])
    from dp_ensemble_env.experiments.runner import compute

    row = compute(pickle.loads(cell), _ready[digest])
    row.compute["node"] = ray.get_runtime_context().get_node_id()
    return row


def unpack(code: bytes, digest: str) -> str:
    """Unpack the code into the user's cache, unless it is there; several workers may do so at once."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dp_ensemble_env"
    target = cache / digest
    if not target.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        fresh = tempfile.mkdtemp(dir=cache)
        with zipfile.ZipFile(io.BytesIO(code)) as archive:
            archive.extractall(fresh)
        try:
            os.rename(fresh, target)
        except OSError:  # another worker was first
            shutil.rmtree(fresh)
    return str(target)
