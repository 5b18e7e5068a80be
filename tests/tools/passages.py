"""A plugin of pytest for `mutants.py`: it notes which lines of some modules each test passes over.

Called with ``-p passages``; ``MUTANTS_MODULES`` names the modules and ``MUTANTS_SEEN`` the file to write.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

_PACKAGE = Path(__file__).parents[2] / "dp_ensemble_env"
_MODULES = {str(_PACKAGE / name): name for name in json.loads(os.environ.get("MUTANTS_MODULES", "[]"))}
_SEEN: dict[str, tuple[float, dict[str, list[int]]]] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    lines: dict[str, set[int]] = {}

    def within(frame: FrameType, event: str, argument: Any) -> Any:
        lines.setdefault(frame.f_code.co_filename, set()).add(frame.f_lineno)
        return within

    def called(frame: FrameType, event: str, argument: Any) -> Any:
        return within if frame.f_code.co_filename in _MODULES else None

    begun = time.perf_counter()
    threading.settrace(called)
    sys.settrace(called)
    try:
        return (yield)
    finally:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
        _SEEN[item.nodeid] = (
            time.perf_counter() - begun,
            {_MODULES[name]: sorted(numbers) for name, numbers in lines.items()},
        )


def pytest_sessionfinish() -> None:
    Path(os.environ["MUTANTS_SEEN"]).write_text(json.dumps(_SEEN), encoding="utf-8")
