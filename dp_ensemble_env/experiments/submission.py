"""Strangers' files: what they bring, and an agent of theirs in a process of its own.

The process is sent what the agent may know, which is public models (of a private instance: its release and the fields
that are declared public), and afterwards observations only. It never holds a true behaviour, so nothing that the file
does in its own process can find one. It answers with arrays and words, never with pickles.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pickle
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import IO, Any

import numpy as np

from dp_ensemble_env.agents import Agent, agent_kind, agent_names, make_agent, register_agent
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.tools import registry


def bring(source: str, name: str) -> frozenset[str]:
    """Run a stranger's file, and return the names of what it brings.

    The file registers what it brings, or it is an agent itself: it has ``predict``, or ``make(env)`` or
    ``make(env, seed)`` that returns an agent. Such an agent is called by the name of its file.
    """
    plugin = registry.load_source(source.encode(), name)
    make, predict = (getattr(plugin.module, word, None) for word in ("make", "predict"))
    if plugin.names or not (callable(make) or callable(predict)):
        return plugin.names

    @functools.wraps(make if callable(make) else lambda env: None)  # whose settings it takes
    def made(env: EnsembleEnv, **settings: Any) -> Any:
        agent = make(env, **settings) if callable(make) else plugin.module
        if not callable(getattr(agent, "predict", None)):
            raise ValueError("make(env) of the file returned something without predict; return an agent.")
        return agent

    register_agent(name)(made)
    return frozenset({name})


# ------------------------------------------------------------------ in this process
class SubmissionError(Exception):
    """The stranger's code failed, in its own words."""


class RemoteAgent:
    """The agent of a submitted file, which runs elsewhere; only the public models of `env` leave.

    Without an environment the file's definitions are checked alone. `code` has texts of other files that are run first:
    they bring the scenario or the action mode.
    """

    privacy = "that of the environment it was made in"

    def __init__(self, source: str, name: str, env: EnsembleEnv | None, seed: int, code: Mapping[str, str]) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=self._folder.name
        )
        task: dict[str, Any] = {"source": source, "name": name, "code": dict(code)}
        if env is not None:
            population = "mean-field" if env.population is None else env.population
            task |= {"models": env.models, "release": env.release, "population": population,
                     "action": env.action_mode, "seed": seed}  # fmt: skip
        try:
            self._send(pickle.dumps(task))
            self._answer()
        except BaseException:
            self.close()
            raise

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[np.ndarray[Any, Any], Any]:
        """Send observations, and return the actions; the agent's own state stays where the agent is."""
        self._send(pickle.dumps((np.asarray(observation), state is None, episode_start, deterministic)))
        return self._answer(), True

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()
        self._folder.cleanup()

    def _send(self, content: bytes) -> None:
        assert self._process.stdin is not None
        try:
            write(self._process.stdin, content)
        except OSError as error:
            raise SubmissionError("the process of the submission has ended") from error

    def _answer(self) -> np.ndarray[Any, Any]:
        assert self._process.stdout is not None
        answer = read(self._process.stdout)
        if answer is None:
            raise SubmissionError(f"the process of the submission ended with status {self._process.wait()}")
        size = int.from_bytes(answer[:4], "little")
        head = json.loads(answer[4 : 4 + size])
        if "error" in head:
            raise SubmissionError(str(head["error"]))
        return np.frombuffer(answer[4 + size :], dtype=np.dtype(str(head["dtype"]))).reshape(head["shape"])


def write(stream: IO[bytes], content: bytes) -> None:
    """Write a message after its length."""
    stream.write(struct.pack("<Q", len(content)) + content)
    stream.flush()


def read(stream: IO[bytes]) -> bytes | None:
    """Read a message; None at the end of the stream."""
    head = stream.read(8)
    if len(head) < 8:
        return None
    size = struct.unpack("<Q", head)[0]
    content = stream.read(size)
    return content if len(content) == size else None


# ------------------------------------------------------------------ in the other process
def _array(values: Any) -> bytes:
    array = np.ascontiguousarray(values)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"predict returned {array.dtype}, not numbers")
    return _headed({"dtype": array.dtype.str, "shape": array.shape}) + array.tobytes()


def _headed(head: dict[str, Any]) -> bytes:
    text = json.dumps(head).encode()
    return len(text).to_bytes(4, "little") + text


def _make(task: dict[str, Any]) -> Agent | None:
    for name, text in task["code"].items():
        bring(text, name)
    names = bring(task["source"], task["name"]) & set(agent_names())
    if len(names) != 1:
        raise ValueError(
            f"the file defines {len(names) or 'no'} agent{'s' if names else ''}; define one, by a function predict or "
            "make(env), or by register_agent."
        )
    (name,) = names
    if "models" not in task:
        return None
    release, models = task["release"], list(task["models"])
    env = EnsembleEnv(models if release is None else models[0], task["population"], task["action"], privacy=release)
    seeded = {"seed": task["seed"]} if agent_kind(name).takes("seed") else {}
    return make_agent(name, env, **seeded)


def main() -> None:
    """Make the agent that is asked for, and answer observations with actions."""
    ours = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the stranger's code prints is no answer
    agent: Any = None
    state: Any = None
    while (content := read(sys.stdin.buffer)) is not None:
        try:
            asked = pickle.loads(content)
            if agent is None:
                agent, answer = _make(asked), np.zeros(0)
            else:
                observation, fresh, begins, deterministic = asked
                answer, state = agent.predict(observation, None if fresh else state, begins, deterministic)
            reply = _array(answer)
        except Exception as error:
            reply = _headed({"error": f"{type(error).__name__}: {' '.join(str(error).split())}"})
        write(ours, reply)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        main()
