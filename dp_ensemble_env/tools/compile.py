"""Compiled functions that are kept on disk if possible, and compiled anew if not.

Numba's cache fails at import if no folder can be written to, and at the first call if a file is damaged or the disk is
full. Here a warning says, once, that starting takes longer, and the function is compiled.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import numba
from numba.core.caching import FunctionCache

Function = TypeVar("Function", bound=Callable[..., Any])
#: The messages that were shown.
_shown: set[str] = set()


def njit(*, cache: bool = False, **options: Any) -> Callable[[Function], Function]:
    """Compile a function as `numba.njit` does; ``cache=True`` never fails."""

    def decorate(function: Function) -> Function:
        compiled = numba.njit(**options)(function)
        if cache and hasattr(compiled, "_cache"):  # NUMBA_DISABLE_JIT leaves the function as it is
            try:
                compiled._cache = _Cache(function)  # type: ignore[no-untyped-call]
            except Exception as error:  # no folder can be written to
                _warn(error)
        return compiled  # type: ignore[no-any-return]

    return decorate


class _Cache(FunctionCache):  # type: ignore[misc]
    """Numba's cache of one function; errors become one warning."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        compiled = None
        try:
            compiled = super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except Exception as error:
            _warn(error)
            with contextlib.suppress(Exception):
                self.flush()  # type: ignore[no-untyped-call]  # a new index, so that damaged files are replaced
        if compiled is None and "compiling" not in _shown and sys.stderr is not None and sys.stderr.isatty():
            _shown.add("compiling")
            print("dp_ensemble_env: compiling functions for their first use; this takes some seconds.", file=sys.stderr)
        return compiled

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]
        except Exception as error:
            _warn(error)
            self.disable()  # type: ignore[no-untyped-call]


def _warn(error: Exception) -> None:
    if "warning" not in _shown:
        _shown.add("warning")
        reason = " ".join(str(error).split()) or type(error).__name__
        warnings.warn(
            f"compiled functions cannot be kept on disk or read back ({reason}), so starting takes longer; set "
            "NUMBA_CACHE_DIR to a folder that can be written to.",
            stacklevel=3,
        )
