"""Atomic writes, checks of files before they are read, and folder locks."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import stat
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

try:
    import fcntl
except ImportError:  # not on Windows: there locks are left out
    fcntl = None  # type: ignore[assignment]

#: Temporary files are called ``.<name>.<mark><eight letters>``, so that no other file is taken for one.
MARK = "dp-ensemble-"
_TEMPORARY = re.compile(rf"\..+\.{MARK}\w{{8}}")
#: Errors of a disk without room, in words.
_FULL = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "the quota is used up", errno.EFBIG: "it would be too large"}


def resolved(path: str | os.PathLike[str]) -> Path:
    """Return the path with links followed; refuse links that lead in a circle."""
    try:
        os.stat(path)  # from Python 3.13 on `resolve` lets circles pass
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ValueError(f"{path} is a link that leads in a circle; give the name of a file.") from error
    return Path(path).resolve()


@contextmanager
def atomic_write(path: str | os.PathLike[str], mode: str = "w") -> Iterator[IO[Any]]:
    """Open a temporary file that replaces `path` when the block ends well.

    The data are on disk before the name changes (fsync, then rename), so a crash leaves the former file untouched and
    no reader sees a partial one. A symbolic link is followed; a folder or a device is refused.
    """
    target = resolved(path)
    if target.is_dir():
        raise ValueError(f"{target} is a folder; give the name of a file to write.")
    if target.exists() and not target.is_file():
        raise ValueError(f"{target} is a device or the like; give the name of a file to write.")
    # mkstemp makes files for the owner alone; a new file gets what open() would have given it.
    os.umask(umask := os.umask(0))
    permissions = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~umask
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.{MARK}")
    except OSError as error:
        raise _cannot_write(target, error) from error
    try:
        text = "b" not in mode
        with os.fdopen(handle, mode, encoding="utf-8" if text else None, newline="" if text else None) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, permissions)
        os.replace(temporary, target)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in _FULL:
            raise disk_full(target, error) from error
        raise


def write_json(path: str | os.PathLike[str], content: Any) -> None:
    """Write content as JSON for people and machines, atomically."""
    with atomic_write(path) as stream:
        json.dump(content, stream, indent=1, ensure_ascii=False)
        stream.write("\n")


def _cannot_write(target: Path, error: OSError) -> ValueError:
    return ValueError(f"cannot write {target}: {error.strerror or error}; choose a folder you may write to.")


def disk_full(path: Path, error: OSError) -> Exception:
    """Return an error that names the file for which there was no room; any other error as it is."""
    if error.errno not in _FULL:
        return error
    return ValueError(f"cannot write {path}: {_FULL[error.errno]}; free some space. The old file is kept.")


def check_writable(path: str | os.PathLike[str], *, folder: bool = False) -> None:
    """Refuse, before any work, a file or folder that cannot be written; leave no trace of the trial."""
    target = resolved(path)
    if target.exists() and target.is_dir() != folder:
        kind = "no folder" if folder else "a folder"
        raise ValueError(f"{target} is {kind}; give the name of a {'folder' if folder else 'file'} to write.")
    home = target if folder else target.parent
    while not home.exists() and home != home.parent:
        home = home.parent
    try:
        with tempfile.TemporaryFile(dir=home):
            pass
    except OSError as error:
        raise _cannot_write(target, error) from error


class TooLargeError(ValueError):
    """A file declares more than is accepted."""


def check_npz(path: Path, most: int) -> None:
    """Refuse an archive of arrays that declares more than `most` bytes, before any of them is made."""
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            with archive.open(member) as stream:
                version = np.lib.format.read_magic(stream)
                read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                shape, _, kind = read(stream)
            check_size(max(math.prod(shape) * kind.itemsize, member.file_size), most, member.filename)


def check_size(size: int, most: int, what: str) -> None:
    """Refuse what would take more than `most` bytes, and say how to raise the limit."""
    if size > most:
        raise TooLargeError(
            f"{what} has {size:,} bytes where {most:,} are accepted; if that is right, Release.load with "
            f"limits={-(-size // max(most, 1)) + 1} reads it."
        )


_KINDS = {
    stat.S_IFIFO: "a fifo (named pipe)",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def readable_file(path: str | os.PathLike[str]) -> Path:
    """Return the path of a regular file; folders, fifos, devices and links in a circle are refused unopened.

    Opening a fifo would wait for a writer, and a device never ends.
    """
    try:
        file = Path(path)
    except TypeError as error:
        raise ValueError(f"path must be the name of a file, got {path!r}; pass a str or a Path.") from error
    try:
        mode = os.stat(file).st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(
            f"there is no file {str(file)!r}; check the name (current folder: {Path.cwd()})."
        ) from None
    except ValueError as error:  # a name with a null character
        raise ValueError(f"path must be the name of a file, got {path!r} ({error}); correct it.") from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ValueError(f"{file} is a symbolic link that leads back to itself; give the file itself.") from None
        raise ValueError(
            f"cannot read {file}: {error.strerror or error}; check the name and the permissions."
        ) from None
    if stat.S_ISDIR(mode):
        raise ValueError(f"{file} is a folder; give the name of a file in it.")
    if not stat.S_ISREG(mode):
        raise ValueError(f"{file} is {_KINDS.get(stat.S_IFMT(mode), 'no file')}; give the name of a regular file.")
    if not os.access(file, os.R_OK):
        raise ValueError(f"cannot read {file}: you have no permission; ask for it, or give another file.")
    return file


# ------------------------------------------------------------------ one writer
@contextmanager
def sole_writer(folder: Path, work: str = "writing") -> Iterator[None]:
    """Lock a folder against other processes that lock it too; raise if one has.

    The lock ends with the process. Temporary files that a killed process left are removed.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise ValueError(f"cannot write to {folder}: {error.strerror or error}; choose another folder.") from error
    try:
        if fcntl is not None:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ValueError(
                    f"another process is {work} in {folder}; wait until it has finished, or choose another folder."
                ) from None
            except OSError:  # a file system without locks
                pass
        for entry in folder.iterdir():
            if _TEMPORARY.fullmatch(entry.name):
                entry.unlink(missing_ok=True)
        yield
    finally:
        os.close(handle)  # releases the lock
