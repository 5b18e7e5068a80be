"""An append-only text file that survives interruptions and is shared by processes.

A line is written with one system call and flushed to disk before the call
returns. A last line without its newline was cut short by a crash before its write
was confirmed: it is dropped with a warning, and every line before it stays.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple


class Position(NamedTuple):
    """How far a file has been read; a file with another first line is another file."""

    first: bytes
    offset: int


START = Position(b"", 0)


@contextmanager
def locked(path: Path | None) -> Iterator[None]:
    """Hold the lock that goes with `path`, so that processes check and write in turn (no file: no lock)."""
    if path is None:
        yield
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise ValueError(f"cannot open {path}: {error.strerror or error}; choose a folder you may write to.") from error
    try:
        try:
            import fcntl
        except ImportError:  # not on Windows: there a file is for one process at a time
            pass
        else:
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)  # releases the lock


def read(path: Path, position: Position) -> tuple[list[str], Position]:
    """Return the complete lines after `position` (all of them if the file was replaced), and the new position."""
    try:
        with path.open("rb") as stream:
            first = stream.readline()
            size = stream.seek(0, os.SEEK_END)
            offset = position.offset if first == position.first and size >= position.offset else 0
            stream.seek(offset)
            fresh = stream.read()
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror or error}; is it the right file?") from error
    whole = fresh.rfind(b"\n") + 1
    if whole < len(fresh):
        warnings.warn(
            f"the last line of {path} was cut short ({len(fresh) - whole} bytes) and is dropped; all before it stands",
            RuntimeWarning,
            stacklevel=4,
        )
        os.truncate(path, offset + whole)
    try:
        text = fresh[:whole].decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no text file; name a ledger file.") from error
    return text.splitlines(), Position(first, offset + whole)


def append(path: Path, line: str, position: Position) -> Position:
    """Add one line and return only when it is on disk."""
    data = line.encode("utf-8")
    handle = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        written = os.write(handle, data)
        while written < len(data):
            written += os.write(handle, data[written:])
        os.fsync(handle)
    finally:
        os.close(handle)
    return Position(position.first, position.offset + len(data))


def end_of(path: Path) -> Position:
    """Return the position after the last byte."""
    with path.open("rb") as stream:
        return Position(stream.readline(), stream.seek(0, os.SEEK_END))
