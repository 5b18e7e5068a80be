"""What a ledger holds: its charges, its settings and the digests of what was drawn, in memory and in its file."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dp_ensemble_env.privacy import _journal
from dp_ensemble_env.privacy.accounting.account import Account
from dp_ensemble_env.privacy.accounting.divergence import check_delta
from dp_ensemble_env.privacy.accounting.losses import Rows
from dp_ensemble_env.privacy.mechanisms.base import Event
from dp_ensemble_env.tools.files import atomic_write
from dp_ensemble_env.tools.validation import check_choice, check_count, check_positive

FORMAT = "dp-ensemble-ledger"
_KEY = secrets.token_bytes(32)
Line = dict[str, Any]


class Book:
    """The content of a ledger.

    Parameters
    ----------
    path : Path, optional
        File that keeps it; what is there already is read.
    account : Account
        Where charges are counted, with the budget and how rows compose.
    h : float
        Adjacency where a draw states none.
    """

    def __init__(self, path: Path | None, account: Account, h: float) -> None:
        self.path, self.account, self.h = path, account, h
        self.digests: set[str] = set()
        self._position = _journal.START
        if path is not None:
            with _journal.locked(path):
                self._open(path)

    @contextmanager
    def current(self) -> Iterator[Account]:
        """Hold the lock, having read what other processes have added since."""
        with _journal.locked(self.path):
            self._refresh()
            yield self.account

    def read(self) -> Account:
        """Read what other processes have added since, and let go of the lock."""
        with self.current() as account:
            return account

    def add(self, label: str, event: Event, times: int) -> None:
        """Put an entry on disk, then count it. Called within `current`."""
        self._write(to_line(str(label), event, times))
        self.account.add(str(label), event, times)

    def note(self, digest: str) -> None:
        """Keep the digest of a release that was paid for. Called within `current`."""
        if digest not in self.digests:
            self._write({"drawn": digest})
            self.digests.add(digest)

    def key(self) -> bytes:
        """Return the secret that draws are named with: the process's, or that of the file, made when it is needed."""
        if self.path is None:
            return _KEY
        with _journal.locked(self.path):
            file = self.path.with_name(self.path.name + ".key")
            if not file.exists():
                with atomic_write(file) as stream:
                    stream.write(secrets.token_hex(32))
                file.chmod(0o600)
            return file.read_bytes()

    def header(self) -> Line:
        """Return the settings as the first line has them."""
        budget = None if self.account.budget is None else list(self.account.budget)
        return {"format": FORMAT, "version": 2, "budget": budget, "rows": self.account.rows, "h": self.h}

    def save(self, path: Path) -> None:
        """Write a copy to another file."""
        with _journal.locked(path):
            _journal.replace(path, self._lines())

    # ------------------------------------------------------------ the file
    def _lines(self) -> list[Line]:
        entries = [to_line(*entry) for entry in self.account.log]
        return [self.header(), *entries, *({"drawn": digest} for digest in sorted(self.digests))]

    def _write(self, line: Line) -> None:
        if self.path is None:
            return
        if self._position == _journal.START:
            warnings.warn(f"the ledger {self.path} of version 1 is upgraded to version 2", UserWarning, stacklevel=6)
            self._position = _journal.replace(self.path, self._lines())
        self._position = _journal.append(self.path, line, self._position)

    def _open(self, path: Path) -> None:
        """Read the file, or begin it."""
        if _journal.is_new(path):
            self._position = _journal.replace(path, self._lines())
            return
        asked = self.account.budget
        self._refresh()
        if asked is not None and self.account.budget is None:
            self._write({"budget": list(asked)})
            self.account.budget = asked
        elif asked is not None and asked != self.account.budget:
            raise ValueError(
                f"the ledger {path} has the budget {self.account.budget}, not {asked}; open it without a budget to go "
                "on under its own, or start another ledger."
            )

    def _refresh(self) -> None:
        if self.path is None:
            return
        before = self._position
        lines, position = _journal.read(self.path, before)
        if before == _journal.START:
            header = check_header(lines.pop(0), position == _journal.START, self.path)
            self.account = Account(check_rows(header["rows"]), check_budget(header["budget"]))
            self.h, self.digests = float(header["h"]), set()
        first = (position.entries or len(lines) + 1) - len(lines) + 1
        for number, line in enumerate(lines, first):
            self._take(number, line)
        self._position = position

    def _take(self, number: int, line: Line) -> None:
        try:
            if set(line) == {"drawn"}:
                self.digests.add(str(line["drawn"]))
            elif set(line) == {"budget"}:
                self.account.budget = check_budget(line["budget"])
            else:
                self.account.add(*from_line(line))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(
                f"entry {number} of the ledger {self.path} is damaged ({error}); {_journal.RESTORE}."
            ) from error

    def __getstate__(self) -> dict[str, Any]:
        # A ledger with a file is the file: a copy reads it again.
        if self.path is None:
            return self.__dict__
        account = Account(self.account.rows, self.account.budget)
        return {**self.__dict__, "_position": _journal.START, "account": account, "digests": set()}


# ------------------------------------------------------------------ lines
def check_header(header: Any, unchained: bool, source: Any = "the text") -> Line:
    """Refuse a first line that no ledger wrote, or that lacks something."""
    if not isinstance(header, dict) or header.get("format") != FORMAT or header.get("version") not in (1, 2):
        raise ValueError(f"{source} {_journal.NO_LEDGER}")
    if unchained and header["version"] != 1:
        raise ValueError(f"entry 1 of the ledger {source} carries no digest; {_journal.RESTORE}.")
    for name in ("budget", "rows", "h"):
        if name not in header:
            raise ValueError(f"the first line of the ledger {source} has no {name!r}; {_journal.RESTORE}.")
    return header


def to_line(label: str, event: Event, times: int) -> dict[str, Any]:
    """Return the JSON object of one entry."""
    return {"label": label, "times": times, "event": event.to_json()}


def from_line(line: dict[str, Any]) -> tuple[str, Event, int]:
    """Read one entry back, refusing what no ledger wrote."""
    fields = dict(line)
    label, times = str(fields.pop("label")), check_count(fields.pop("times"), "times")
    if "kind" in fields:  # version 1
        kind = fields.pop("kind")
        if kind != "release":
            fields = {}
        else:  # it does not tell a time-varying matrix from another, so each row counts as a matrix of its own
            fields["steps"] = len(fields["successors"])
        fields = {"event": {"type": "dirichlet" if kind == "release" else kind, **fields}}
    if set(fields) != {"event"}:
        raise ValueError(f"an entry holds label, times and event, not {', '.join(fields)}")
    return label, Event.from_json(fields["event"]), times


def check_rows(rows: Any) -> Rows:
    """Check how rows compose: "sequential", "parallel", or the number of rows that one unit touches."""
    if isinstance(rows, str):
        return check_choice(rows, "rows", ("sequential", "parallel"))
    return check_count(rows, "rows")


def check_budget(budget: Any) -> tuple[float, float] | None:
    """Check a pair (epsilon, delta)."""
    if budget is None:
        return None
    try:
        epsilon, delta = budget
    except (TypeError, ValueError) as error:
        raise ValueError(f"budget must be a pair (epsilon, delta), got {budget!r}; pass budget=(1.0, 1e-6).") from error
    return check_positive(epsilon, "budget epsilon"), check_delta(delta)
