"""The file of a ledger: append-only JSON objects that several processes share and that cannot lose an entry unnoticed.

Each line carries a digest (``chain``) of the line before it and of its own content, so an edited, deleted or reordered
line no longer follows from its predecessor. The *head*, a small file beside it (``<name>.head``) with the number of
lines and the last digest, tells that its end was not cut off.

The line is written first, then the head, each flushed to disk (fsync), and only then does the caller draw. So wherever
a process is killed

* a line that is cut short was never confirmed by the head, hence nothing was drawn for it: it is dropped with a
  warning. If the head does count it, the file is refused;
* a whole line that the head does not know yet is counted, whether its draw was made or not;
* fewer lines than the head counts, or another line where the head points, are refused;
* a last line that lacks only its newline is whole, and the newline is put back.

A file is written anew only where there was none, its head first. None of this stops a forger who rewrites both files.
An entry holds the event of a draw *and* its losses, so that a process composes it without the code of its mechanism.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from dp_ensemble_env.privacy.mechanisms.base import Event
from dp_ensemble_env.tools.files import atomic_write, disk_full, resolved
from dp_ensemble_env.tools.validation import check_count

try:
    import fcntl
except ImportError:  # not on Windows: there a file is for one process at a time
    fcntl = None  # type: ignore[assignment]

FORMAT, VERSION = "dp-ensemble-ledger", 3
RESTORE = "restore the file and its .head from a copy: deleted entries still count as spent"
NO_LEDGER = f"is no {FORMAT} of version {VERSION}; name a new file, or one that a PrivacyLedger wrote."
Line = dict[str, Any]


class Position(NamedTuple):
    """How far a file has been read: bytes, lines, and the digest of the last line."""

    offset: int = 0
    entries: int = 0
    chain: str = ""


START = Position()
_IN_MEMORY = threading.RLock()
_KEY = secrets.token_bytes(32)


@contextmanager
def locked(path: Path | None) -> Iterator[None]:
    """Hold the lock that goes with `path`, so that processes check and write in turn (no file: threads do)."""
    if path is None:
        with _IN_MEMORY:
            yield
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise ValueError(f"cannot open {path}: {error.strerror or error}; choose a folder you may write to.") from error
    try:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)  # releases the lock


# ------------------------------------------------------------------ writing
def linked(chain: str, content: Line) -> tuple[str, str]:
    """Return the line that carries `content` after the digest `chain`, and its own digest."""
    digest = hashlib.sha256((chain + json.dumps(content)).encode()).hexdigest()
    return json.dumps({**content, "chain": digest}) + "\n", digest


def begin(path: Path, header: Line) -> Position:
    """Write a new file of one line, head first."""
    line, chain = linked("", header)
    end = Position(len(line), 1, chain)
    write_head(path, end)
    with atomic_write(path) as stream:
        stream.write(line)
    _flush_folder(path)
    return end


def append(path: Path, content: Line, position: Position) -> Position:
    """Add one line after `position`, the end of the file; return only when line and head are on disk."""
    line, chain = linked(position.chain, content)
    data = line.encode("ascii")
    handle = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        written = os.write(handle, data)
        while written < len(data):
            written += os.write(handle, data[written:])
        os.fsync(handle)
    except OSError as error:
        raise disk_full(path, error) from error
    finally:
        os.close(handle)
    end = Position(position.offset + len(data), position.entries + 1, chain)
    write_head(path, end)
    return end


def _head_path(path: Path) -> Path:
    return path.with_name(path.name + ".head")


def write_head(path: Path, end: Position) -> None:
    """Confirm all lines up to `end`."""
    # If a power failure undoes the rename the head lags behind, and what it does not know is counted anyway.
    with atomic_write(_head_path(path)) as stream:
        json.dump({"entries": end.entries, "chain": end.chain}, stream)


def _flush_folder(path: Path) -> None:
    """Make the names of new files last, where the system can."""
    try:
        handle = os.open(resolved(path).parent, os.O_RDONLY)
    except OSError:  # Windows cannot open folders
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# ------------------------------------------------------------------ reading
def is_new(path: Path) -> bool:
    """Whether there is no file yet; refuse if there was one."""
    if path.exists():
        return False
    head = _read_head(path)
    if head is not None and head.entries > 1:  # a first line alone has paid for nothing
        raise ValueError(f"the ledger {path} is gone, but its head counts {head.entries} lines; {RESTORE}.")
    return True


def read(path: Path, position: Position) -> tuple[list[Line], Position]:
    """Return what follows `position`, checked against chain and head, and the new position."""
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(position.offset)
            data = stream.read()
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror or error}; is it the right file?") from error
    if size < position.offset:
        raise ValueError(f"the ledger {path} is shorter than it was when it was last read; {RESTORE}.")
    head = _read_head(path)
    if position == START:
        first = _parsed(data.split(b"\n", 1)[0])
        if first is None or ("chain" not in first and first.get("format") != FORMAT):
            raise ValueError(f"{path} {NO_LEDGER}")
    if head is None:
        raise ValueError(f"the ledger {path} has lost its head, so nobody can tell whether it is whole; {RESTORE}.")
    contents, position, known = _chained(path, data, position, head)
    if head.entries > position.entries:
        raise ValueError(
            f"the ledger {path} ends after {position.entries} lines, but its head counts {head.entries}: the last ones "
            f"were deleted; {RESTORE}."
        )
    if not known:
        raise ValueError(f"entry {head.entries} of the ledger {path} is not the one that its head knows; {RESTORE}.")
    if head.entries < position.entries:
        write_head(path, position)
    return contents, position


def _read_head(path: Path) -> Position | None:
    try:
        content = json.loads(_head_path(path).read_bytes())
        return Position(0, int(content["entries"]), str(content["chain"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the head of the ledger {path} is damaged ({error}); {RESTORE}.") from error


def _parsed(line: bytes) -> Line | None:
    try:
        content = json.loads(line)
    except ValueError:
        return None
    return content if isinstance(content, dict) else None


def _chained(path: Path, data: bytes, position: Position, head: Position) -> tuple[list[Line], Position, bool]:
    """Check line after line against the one before; return them, where they end, and whether the head agrees."""
    contents: list[Line] = []
    known = position.entries != head.entries or position.chain == head.chain
    for line in data.splitlines(keepends=True):
        number, content, whole = position.entries + 1, _parsed(line), line.endswith(b"\n")
        if content is None and not whole and head.entries < number:
            warnings.warn(
                f"the last line of {path} was cut short ({len(line)} bytes) before its draw was made, and is dropped; "
                "all before it stands",
                UserWarning,  # the command line shows these alone
                stacklevel=4,
            )
            os.truncate(path, position.offset)
            break
        chain = None if content is None else content.pop("chain", None)
        if content is None or not isinstance(chain, str):
            fault = "is damaged" if whole else "is cut short"
            raise ValueError(f"entry {number} of the ledger {path} {fault}; {RESTORE}.")
        if linked(position.chain, content)[1] != chain:
            before = "" if number == 1 else ", or lines before it were deleted or moved"
            raise ValueError(
                f"entry {number} of the ledger {path} does not agree with its digest: it was edited{before}; {RESTORE}."
            )
        contents.append(content)
        if not whole:
            with path.open("ab") as stream:
                stream.write(b"\n")
        position = Position(position.offset + len(line) + (not whole), number, chain)
        known = known and (number != head.entries or chain == head.chain)
    return contents, position, known


# ------------------------------------------------------------------ contents
def check_header(header: Any, source: Any = "the text") -> Line:
    """Refuse a first line that no ledger wrote, or that lacks something."""
    if not isinstance(header, dict) or (header.get("format"), header.get("version")) != (FORMAT, VERSION):
        raise ValueError(f"{source} {NO_LEDGER}")
    for name in ("budget", "rows", "h"):
        if name not in header:
            raise ValueError(f"the first line of the ledger {source} has no {name!r}; {RESTORE}.")
    return header


def to_line(label: str, event: Event, times: int) -> Line:
    """Return the JSON object of one entry: the event of a draw with its losses."""
    return {"label": label, "times": times, "event": event.to_json()}


def from_line(line: Line) -> tuple[str, Event, int]:
    """Read one entry back, refusing what no ledger wrote."""
    if set(line) != {"label", "times", "event"}:
        raise ValueError(f"an entry holds label, times and event, not {', '.join(line)}")
    return str(line["label"]), Event.from_json(line["event"]), check_count(line["times"], "times")


def key_of(path: Path | None) -> bytes:
    """Return the secret that draws are named with: the process's, or that of the file, made when it is needed."""
    if path is None:
        return _KEY
    with locked(path):
        file = path.with_name(path.name + ".key")
        if not file.exists():
            with atomic_write(file) as stream:
                stream.write(secrets.token_hex(32))
            file.chmod(0o600)
        return file.read_bytes()
