"""Compiled functions that are kept on disk where that is possible, and are compiled anew where it is not.

Numba keeps what it has compiled beside the source or in the user's cache folder. An installation that cannot be
written to, without a home folder, makes it fail at import; a damaged file or a full disk, at the first call. None of
this is a reason not to compute: one warning says that starting takes longer, and the function is compiled.
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
_warned = False
_announced = False


def njit(*, cache: bool = False, **options: Any) -> Callable[[Function], Function]:
    """Compile a function as `numba.njit` does; ``cache=True`` never fails."""

    def decorate(function: Function) -> Function:
        compiled = numba.njit(**options)(function)
        if cache and hasattr(compiled, "_cache"):  # without compilation (NUMBA_DISABLE_JIT) there is none
            try:
                compiled._cache = _Cache(function)  # type: ignore[no-untyped-call]
            except Exception as error:  # no folder can be written to
                _warn(error)
        return compiled  # type: ignore[no-any-return]

    return decorate


class _Cache(FunctionCache):  # type: ignore[misc]
    """Numba's cache of one function, which is left alone as soon as it fails."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return what was compiled before, or None."""
        try:
            found = super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
            if found is None:
                _announce()
            return found
        except Exception as error:
            _warn(error)
            with contextlib.suppress(Exception):
                # The index begins anew, so that what is compiled now replaces what is damaged.
                self.flush()  # type: ignore[no-untyped-call]
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep what was compiled."""
        try:
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]
        except Exception as error:
            _warn(error)
            self.disable()  # type: ignore[no-untyped-call]


def _announce() -> None:
    """Tell whoever sits at the terminal, once, why nothing happens for a while."""
    global _announced
    if not _announced and sys.stderr is not None and sys.stderr.isatty():
        print(
            "dp_ensemble_env: compiling what has not been used before; this takes some seconds, once.", file=sys.stderr
        )
    _announced = True


def _warn(error: Exception) -> None:
    global _warned
    if not _warned:
        _warned = True
        reason = " ".join(str(error).split()) or type(error).__name__
        warnings.warn(
            f"compiled functions cannot be kept on disk or read back ({reason}), so starting takes longer; set "
            "NUMBA_CACHE_DIR to a folder that can be written to.",
            UserWarning,
            stacklevel=3,
        )
