"""Files that are either the old ones or the new ones, never half of each."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


@contextmanager
def atomic_write(path: str | os.PathLike[str], mode: str = "w") -> Iterator[IO[Any]]:
    """Open a temporary file that replaces `path` when the block ends well.

    The data are on disk before the name changes (fsync, then rename), so a
    crash leaves the former file untouched and no reader sees a partial one. A
    symbolic link is followed, and what is no regular file is refused.
    """
    target = Path(path).resolve()
    if target.is_dir():
        raise ValueError(f"{target} is a folder; give the name of a file to write.")
    if target.exists() and not target.is_file():
        raise ValueError(f"{target} is a device or the like; give the name of a file to write.")
    # mkstemp makes files for the owner alone; a new file gets what open() would have given it.
    permissions = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise ValueError(
            f"cannot write {target}: {error.strerror or error}; choose a folder you may write to."
        ) from error
    try:
        text = "b" not in mode
        with os.fdopen(handle, mode, encoding="utf-8" if text else None, newline="" if text else None) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, permissions)
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
