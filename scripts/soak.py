"""Kill, race and fuzz for a given number of minutes, and count what was tried, what survived and what was lost.

Kinds of trial take turns until the time is up (``make soak MINUTES=5``); the seed is printed, and ``--seed`` repeats a
run. A trial is lost if

kills
    a training run that is killed at random moments and resumed does not finish with the curve of one never killed.
ledgers
    of processes that charge one ledger file at the same time one is killed, and a confirmed charge is missing.
files
    reading a file of some format, damaged at random, ends in anything but a result or a sentence.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dp_ensemble_env import samples
from dp_ensemble_env.agents.weights import load_weights, save_weights
from dp_ensemble_env.meter import read_meter
from dp_ensemble_env.privacy import Release, mechanism
from dp_ensemble_env.privacy.ledger import PrivacyLedger

SPEC = "dirichlet:k=50,floor=0.05"
MATRIX = np.array([[0.5, 0.5], [0.3, 0.7]])
TRAINING = ["--algo", "a2c", "--set", "n_envs=8", "--no-tensorboard", "--steps", "14400", "--interval", "720"]
Trial = Callable[[np.random.Generator, Path], None]


def require(fine: bool, words: str) -> None:
    """Count the trial as lost unless `fine`."""
    if not fine:
        raise AssertionError(words)


# ------------------------------------------------------------------ kills
_whole: list[Any] = []


def kills(rng: np.random.Generator, folder: Path) -> None:
    """Kill a training run, again and again, until it is finished."""
    command = [sys.executable, "-m", "dp_ensemble_env", "train", *TRAINING, "--output"]
    if not _whole:
        begun = time.monotonic()
        subprocess.run([*command, str(folder / "whole")], check=True, capture_output=True)
        _whole.extend([json.loads((folder / "whole" / "results.json").read_text())["curve"], time.monotonic() - begun])
    run = folder / "run"
    for attempt in range(40):
        resume = ["--resume"] if (run / "config.json").exists() else []
        process = subprocess.Popen([*command, str(run), *resume], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            # In units of a run that is left alone, so that a slow machine gets to the end, too; later ones have longer.
            _, said = process.communicate(timeout=_whole[1] * float(rng.uniform(0.1, 1.0 + 0.3 * attempt)))
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.communicate()
            continue
        require(process.returncode == 0, f"train ended with {process.returncode}: {said.decode()[-300:]}")
        break
    results = json.loads((run / "results.json").read_text())
    require(bool(results["finished"]), "the run never came to its end")
    require(results["curve"] == _whole[0], "the curve is not that of the run that was never killed")
    load_weights(run / "policy.safetensors")
    left = [path.name for path in run.iterdir() if "dp-ensemble-" in path.name]
    require(not left, f"temporary files were left: {left}")


# ------------------------------------------------------------------ ledgers
def _charge(path: str, confirmed: str, times: int) -> None:
    ledger = PrivacyLedger(path)
    for _ in range(times):
        ledger.release(mechanism(SPEC), MATRIX)
        with open(confirmed, "a") as stream:
            stream.write("x")
            stream.flush()
            os.fsync(stream.fileno())


def ledgers(rng: np.random.Generator, folder: Path) -> None:
    """Let processes charge one ledger at the same time, and kill one of them."""
    context = multiprocessing.get_context("fork")
    marks = [folder / f"confirmed-{i}" for i in range(3)]
    charging = [context.Process(target=_charge, args=(str(folder / "ledger.jsonl"), str(m), 12)) for m in marks]
    for process in charging:
        process.start()
    time.sleep(float(rng.uniform(0.0, 0.3)))
    charging[0].kill()
    for process in charging:
        process.join()
    require(all(process.exitcode == 0 for process in charging[1:]), "a process that was not killed failed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a line that was cut short is dropped, and says so
        recorded = PrivacyLedger(folder / "ledger.jsonl").releases
    confirmed = sum(m.stat().st_size for m in marks if m.exists())
    require(confirmed <= recorded <= confirmed + 1, f"{confirmed} charges were confirmed, the file has {recorded}")


# ------------------------------------------------------------------ files
def _samples(folder: Path) -> list[tuple[Path, Callable[[Path], Any]]]:
    times = np.arange(np.datetime64("2018-07-01"), np.datetime64("2018-07-04"), np.timedelta64(15, "m"))
    lines = "".join(f"{time},{40 + i % 7}\n" for i, time in enumerate(times))
    (folder / "meter.csv").write_text(f"time,power_kw\n{lines}")
    (folder / "meter.xml").write_bytes(samples.path("building.xml").read_bytes())
    release = PrivacyLedger().release(mechanism(SPEC), MATRIX)
    release.save(folder / "release.json")
    release.save(folder / "release.npz")
    (folder / "ledger.json").write_text(PrivacyLedger().record(release.event).to_json())
    save_weights(folder / "weights.safetensors", {"a": np.arange(9.0)}, {"agent": "soak"})
    readers: dict[str, Callable[[Path], Any]] = {
        "meter.csv": functools.partial(read_meter, unit="kW", stamp="start"),
        "meter.xml": functools.partial(read_meter, timezone="America/New_York"),
    }
    readers |= {"release.json": Release.load, "release.npz": Release.load, "weights.safetensors": load_weights}
    readers["ledger.json"] = lambda path: PrivacyLedger.from_json(path.read_text(errors="replace"))
    return [(folder / name, read) for name, read in readers.items()]


def _damaged(content: bytes, rng: np.random.Generator) -> bytes:
    data = bytearray(content)
    for _ in range(int(rng.integers(1, 6))):
        place, kind = int(rng.integers(0, max(1, len(data)))), rng.integers(0, 4)
        if kind == 0:
            del data[place:]
        elif kind == 1:
            data[place : place + 1] = rng.bytes(int(rng.integers(1, 20)))
        elif kind == 2:
            del data[place : place + int(rng.integers(1, 50))]
        else:
            words = (b"NaN", b"-inf", b"1e999", b'"', b"[[[[", b"\x00", b"\n\n", b"\xff\xfe", b"<!DOCTYPE", b"=1+1")
            data[place:place] = words[int(rng.integers(0, len(words)))]
    return bytes(data)


def files(rng: np.random.Generator, folder: Path) -> None:
    """Damage a file of each kind and read it: a result, or a sentence."""
    for path, read in _samples(folder):
        path.write_bytes(_damaged(path.read_bytes(), rng))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                read(path)
        except (ValueError, ImportError):
            pass
        except Exception as error:
            raise AssertionError(f"{path.name}: {type(error).__name__}: {error}") from error


TRIALS: dict[str, Trial] = {"kills": kills, "ledgers": ledgers, "files": files}


def soak(minutes: float, seed: int, only: list[str]) -> dict[str, list[int]]:
    """Run trials in turn until the time is up; return how many of each kind were tried and lost."""
    counts = {name: [0, 0] for name in TRIALS if not only or name in only}
    spent = dict.fromkeys(counts, 0.0)
    end, number = time.monotonic() + 60 * minutes, 0
    while time.monotonic() < end or number == 0:
        name, began, number = min(spent, key=lambda kind: spent[kind]), time.monotonic(), number + 1
        with tempfile.TemporaryDirectory(prefix="dp-ensemble-soak-") as folder:
            try:
                TRIALS[name](np.random.default_rng([seed, number]), Path(folder))
            except Exception as error:
                counts[name][1] += 1
                print(f"lost: {name}, trial {number} of seed {seed}: {error}", flush=True)
                if not isinstance(error, AssertionError):
                    traceback.print_exc()
        counts[name][0] += 1
        spent[name] += time.monotonic() - began  # each kind gets the same time
    return counts


def main() -> int:
    """Run for the given time; the status is 1 if anything was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long (default 5)")
    parser.add_argument("--seed", type=int, default=None, help="repeat a run (default: a new one)")
    parser.add_argument("--only", nargs="+", default=[], choices=list(TRIALS), help="kinds of trial (default: all)")
    args = parser.parse_args()
    seed = int(np.random.SeedSequence().generate_state(1)[0]) if args.seed is None else args.seed
    print(f"soaking for {args.minutes:g} minutes, seed {seed}", flush=True)
    counts = soak(args.minutes, seed, args.only)
    print(f"{'':10}{'tried':>8}{'survived':>10}{'lost':>6}")
    for name, (tried, lost) in counts.items():
        print(f"{name:10}{tried:8}{tried - lost:10}{lost:6}")
    return int(any(lost for _, lost in counts.values()))


if __name__ == "__main__":
    sys.exit(main())
