"""A ledger of every release: what was spent, and whether the next one may be drawn.

What is charged is the event of a draw, before the draw is made: `PrivacyLedger.charge`
refuses it, or puts it on record and returns the permit without which no mechanism
draws. `PrivacyLedger.release` does it all. After the draw the ledger notes the digest
of the release, so that it knows the release when it meets it again. Charges compose
over draws (N samples are N releases, E9) and, for the Dirichlet mechanism, over rows:

* ``rows="sequential"``: one unit's data may touch every row, so all compose (E10);
* ``rows="parallel"``: it touches one row of each matrix, the worst is charged;
* ``rows=R``: it touches at most R rows of each matrix (`chain_from_devices`).

What is not a release: solving, simulating or training on a released matrix is
post-processing and free. A policy that is a deterministic function of the *true*
matrix (Taylor, Digamma; E8) is no release but a disclosure: ε = ∞.

A draw without a floor has ε = ∞ as well: no bound holds for all inputs.

Nothing computed from the private matrix is kept here. What is kept are settings, the
public support's row sizes, and h; if h came from counts the entry is marked, the file
stays with its owner, and what leaves (`to_json`, a copied environment) goes without that h.

**It fails closed.** The file is one JSON object a line, each chained to the one before it
by a digest, and an entry is on disk *before* the draw it pays for is made; `_journal` tells
the order of the writes and what is refused. A process that is killed, or races another,
may leave an entry whose draw was never made, and never a draw without its entry. Keep
``<name>.head`` together with the file. Draws at another h, k or floor are other entries.

Environments that are given no ledger share one a process, `PrivacyLedger.of_process`.
"""

from __future__ import annotations

import json
import math
import os
import warnings
from pathlib import Path
from typing import Any

from dp_ensemble_env._validation import check_choice, check_count, check_in_range, check_positive
from dp_ensemble_env.privacy import _journal
from dp_ensemble_env.privacy.accounting.account import Account
from dp_ensemble_env.privacy.accounting.divergence import check_delta
from dp_ensemble_env.privacy.accounting.losses import Rows
from dp_ensemble_env.privacy.mechanisms.base import (
    Disclosure,
    Event,
    Mechanism,
    Permit,
    PostProcessing,
    Release,
    Rng,
    make_permit,
    seeding_of,
)
from dp_ensemble_env.privacy.mechanisms.dirichlet import PAPER_H, DirichletEvent

FORMAT = "dp-ensemble-ledger"


class PrivacyBudgetExceeded(ValueError):  # noqa: N818 - the name says what happened
    """A release would spend more than the ledger's budget."""


class PrivacyLedger:
    """Record every release of a private matrix and say what they add up to.

    Parameters
    ----------
    path : path, optional
        File that keeps the ledger; entries already there are read. Several
        processes may share it.
    budget : (epsilon, delta), optional
        Refuse what would exceed it, before it is drawn.
    rows : {"sequential", "parallel"} or int
        How rows compose, unless a call says otherwise; also for the budget.
    h : float
        Adjacency where a release is recorded without one.

    Examples
    --------
    >>> from dp_ensemble_env.privacy import mechanism
    >>> noise = mechanism("dirichlet:k=50,floor=0.1")
    >>> default = [[0.6, 0.4], [0.3, 0.7]]
    >>> ledger = PrivacyLedger(budget=(2.0, 1e-3))
    >>> release = ledger.release(noise, default, h=0.03)
    >>> round(ledger.spent(1e-3), 2), round(ledger.spent(1e-3, rows="parallel"), 2)
    (1.56, 1.05)
    >>> ledger.authorize(noise.event(default, h=0.03))
    Traceback (most recent call last):
    dp_ensemble_env.privacy.ledger.PrivacyBudgetExceeded: this release would bring the total to epsilon=2.336 at \
delta=0.001, above the budget of 2; use what was released already (post-processing is free), or a smaller k.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        budget: tuple[float, float] | None = None,
        *,
        rows: Rows = "sequential",
        h: float = PAPER_H,
    ) -> None:
        self.path = None if path is None else Path(path)
        self._account = Account(check_rows(rows), _check_budget(budget))
        self.h = check_in_range(h, "h", 0, 2)
        self._digests: set[str] = set()
        self._position = _journal.START
        if self.path is not None:
            with _journal.locked(self.path):
                self._open(self.path)

    @staticmethod
    def of_process() -> PrivacyLedger:
        """Return the ledger that all environments of this process share unless they are given one.

        It is kept in memory and has no budget. An environment on the true dynamics does not
        charge it: running one publishes nothing, and its own ledger reports an infinite ε.
        Sub-environments in processes of their own have ledgers of their own; give them the
        path of a file to share one. A copy of an environment brings its charges along.
        """
        return _OF_PROCESS

    @property
    def budget(self) -> tuple[float, float] | None:
        """The (epsilon, delta) that must not be exceeded, if there is one."""
        return self._account.budget

    @property
    def rows(self) -> Rows:
        """How rows compose, unless a call says otherwise."""
        return self._account.rows

    # ------------------------------------------------------------ recording
    def charge(self, event: Event, label: str = "", *, times: int = 1, rng: Rng = None, data: Any = None) -> Permit:
        """Put a draw on record before it is made, and return the permit to make it.

        Parameters
        ----------
        event : Event
        label : str
            What the draw is for.
        times : int
            Number of equal, independent draws.
        rng : numpy Generator or int, optional
            By default the operating system's entropy.
        data
            What will be drawn from. Needed with an integer seed, whose random stream depends
            on the event and on the data, so that no two draws share one.

        Raises
        ------
        PrivacyBudgetExceeded
            If it would exceed the budget; nothing is recorded then.
        """
        event = self.priced(event)
        if event.random and event.seeding != seeding_of(rng):
            raise ValueError(
                f"the event is of a draw seeded by {event.seeding!r}, but rng={rng!r} was given; make both agree."
            )
        permit = make_permit(event, rng, data)
        self._record(event, label, check_count(times, "times"))
        return permit

    def release(
        self,
        mechanism: Mechanism,
        data: Any,
        rng: Rng = None,
        *,
        label: str = "",
        **terms: Any,
    ) -> Release:
        """Charge one draw, and only then make it.

        Parameters
        ----------
        mechanism : Mechanism
        data
            What it draws from: for the Dirichlet mechanism the true matrix.
        rng : numpy Generator or int, optional
            By default the operating system's entropy.
        label : str
            What the release is for.
        **terms
            Public terms of the draw, such as ``support=`` and ``h=``.
        """
        event = mechanism.event(data, seeding=seeding_of(rng), **terms)
        release = mechanism.draw(data, self.charge(event, label, rng=rng, data=data), **terms)
        self._note(release.digest)
        return release

    def record(
        self,
        release: Release | Event,
        h: Any = None,
        label: str = "",
        *,
        times: int = 1,
        entries: str | None = None,
    ) -> PrivacyLedger:
        """Charge a release that was drawn elsewhere, or an event; return the ledger itself.

        An event (nothing drawn yet) that would exceed the budget is refused and not
        recorded. A `Release` exists already, so it is recorded in any case, and
        `PrivacyBudgetExceeded` is raised afterwards if it overspends.

        Parameters
        ----------
        release : Release or Event
        h : float, array_like, or Adjacency, optional
            Adjacency of the true rows (before the floor shrinks it): one number, one
            per row, or what `adjacency_from_counts` returns. By default the ledger's.
        label : str
            What the release was for.
        times : int
            Number of equal, independent draws.
        entries : {"two", "any"}, optional
            By default "any" for an `Adjacency`, else "two" (Definition 1).
        """
        event, times = self._event_of(release, h, entries), check_count(times, "times")
        if not isinstance(release, Release):
            self._record(event, label, times)
            return self
        self._record_anyway(event, label, times, "the release was drawn already and is on record, but")
        self._note(release.digest)
        return self

    def record_deterministic(self, label: str = "") -> PrivacyLedger:
        """Record the publication of a deterministic function of the true data (E8): ε is infinite from here on."""
        self._record_anyway(Disclosure(), label, 1, "the disclosure is on record, but it")
        return self

    def record_post_processing(self, label: str = "") -> PrivacyLedger:
        """Note a use of what was released; it costs nothing."""
        self._record(PostProcessing(), label, 1)
        return self

    def authorize(
        self, release: Release | Event, h: Any = None, *, times: int = 1, entries: str | None = None
    ) -> PrivacyLedger:
        """Raise `PrivacyBudgetExceeded` if `times` such releases would exceed the budget; record nothing."""
        event = self._event_of(release, h, entries)
        with _journal.locked(self.path):
            self._refresh()
            self._require(event, check_count(times, "times"))
        return self

    check = authorize

    def knows(self, release: Release) -> bool:
        """Whether the release was drawn under this ledger, or recorded in it."""
        self._sync()
        return release.digest in self._digests

    def has(self, label: str, event: Event) -> bool:
        """Whether a draw is on record under this very label and with this very event: same k, floor, h and all."""
        return any((label, event) == known[:2] for known in self.entries)

    def adopt(self, label: str, event: Event, digest: str) -> PrivacyLedger:
        """Count a draw that was charged elsewhere, unless its release is known here; return the ledger itself."""
        self._sync()
        if digest not in self._digests:
            self._record_anyway(self.priced(event), label, 1, "the release was drawn already and is on record, but")
            self._note(digest)
        return self

    def _event_of(self, release: Release | Event, h: Any, entries: str | None) -> Event:
        if not isinstance(release, (Release, Event)):
            raise ValueError(
                f"record takes a Release or an Event, got {type(release).__name__}; for a policy computed from the "
                "true matrix call record_deterministic, for one computed from a release record_post_processing."
            )
        return self.priced((release.event if isinstance(release, Release) else release).under(h, entries))

    def priced(self, event: Event) -> Event:
        """Return the event as it is charged: with the ledger's own adjacency where a Dirichlet draw states none."""
        return event.under(self.h) if isinstance(event, DirichletEvent) and not event.h else event

    def _record(self, event: Event, label: str, times: int) -> None:
        with _journal.locked(self.path):
            self._refresh()
            self._require(event, times)
            self._add(label, event, times)

    def _record_anyway(self, event: Event, label: str, times: int, words: str) -> None:
        """Record what has happened already, and say afterwards if it overspends."""
        with _journal.locked(self.path):
            self._refresh()
            over = self._account.excess(event, times)
            self._add(label, event, times)
        if over is not None:
            raise PrivacyBudgetExceeded(f"{words} {over}")

    def _note(self, digest: str) -> None:
        """Keep the digest of a release that was paid for."""
        with _journal.locked(self.path):
            self._refresh()
            if digest not in self._digests:
                self._write({"drawn": digest})
                self._digests.add(digest)

    # ------------------------------------------------------------ reading
    def spent(self, delta: float, rows: Rows | None = None) -> float:
        """Return the ε at `delta` of everything recorded; infinity where no guarantee holds for all inputs."""
        check_delta(delta)
        self._sync()
        return self._account.epsilon(delta, None if rows is None else check_rows(rows))

    def remaining(self, rows: Rows | None = None) -> float:
        """Return how much ε is left at the budget's δ (infinity without a budget)."""
        return math.inf if self.budget is None else max(0.0, self.budget[0] - self.spent(self.budget[1], rows))

    def statement(
        self,
        delta: float | None = None,
        rows: Rows | None = None,
        *,
        model: Any = None,
        target: tuple[float, float] | None = None,
    ) -> str:
        """Return one line: what was spent, under which adjacency, on which assumptions.

        Parameters
        ----------
        delta : float, optional
            By default the budget's, or 1e-6.
        rows : {"sequential", "parallel"} or int, optional
        model : EnsembleModel, optional
            The private model. With it, a line without a guarantee (no floor) also
            says what its smallest entry would support and which settings reach
            `target`, at what cost; that part must not be published and says so.
        target : (epsilon, delta), optional
        """
        from dp_ensemble_env.privacy import statement

        goal = _check_budget(target) or statement.DEFAULT_TARGET
        return statement.ledger_statement(self, delta, self.rows if rows is None else check_rows(rows), model, goal)

    def __str__(self) -> str:
        return self.statement()

    def __repr__(self) -> str:
        return f"PrivacyLedger({self.releases} releases, path={self.path}, budget={self.budget})"

    @property
    def entries(self) -> tuple[tuple[str, Event, int], ...]:
        """What was recorded, in order: label, charge, number of equal draws in a row."""
        self._sync()
        return tuple(self._account.log)

    @property
    def charges(self) -> dict[Event, int]:
        """How often each different charge was made."""
        self._sync()
        return dict(self._account.charges)

    @property
    def releases(self) -> int:
        """Number of matrices drawn."""
        return sum(times for _, charge, times in self.entries if charge.draws)

    def to_json(self) -> str:
        """Return the ledger as JSON text that may leave: an h that was computed from counts is left out."""
        lines = [_to_line(label, event.public, times) for label, event, times in self.entries]
        return json.dumps({**self._header(), "entries": lines, "drawn": sorted(self._digests)}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> PrivacyLedger:
        """Read what `to_json` wrote (kept in memory, not tied to a file)."""
        try:
            content = json.loads(text)
            _check_header(content, unchained=False)
            ledger = cls(budget=content["budget"], rows=content["rows"], h=content["h"])
            for line in content["entries"]:
                ledger._account.add(*_from_line(line))
            ledger._digests.update(map(str, content.get("drawn", ())))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"this is no ledger ({error}); pass the text that PrivacyLedger.to_json wrote.") from error
        return ledger

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a copy of the ledger as a ledger file, with its head (atomic replace)."""
        self._sync()
        target = Path(path)
        with _journal.locked(target):
            _journal.replace(target, self._lines())
        return target

    def handed_out(self) -> PrivacyLedger:
        """Return what goes along with an environment that leaves: a copy without what is private, or the path."""
        return self if self.path is not None else PrivacyLedger.from_json(self.to_json())

    def _require(self, charge: Event, times: int) -> None:
        over = self._account.excess(charge, times)
        if over is not None:
            raise PrivacyBudgetExceeded(f"this release {over}")

    # ------------------------------------------------------------ the file
    def _header(self) -> dict[str, Any]:
        budget = None if self.budget is None else list(self.budget)
        return {"format": FORMAT, "version": 2, "budget": budget, "rows": self.rows, "h": self.h}

    def _lines(self) -> list[dict[str, Any]]:
        entries = [_to_line(*entry) for entry in self._account.log]
        return [self._header(), *entries, *({"drawn": digest} for digest in sorted(self._digests))]

    def _write(self, line: dict[str, Any]) -> None:
        """Put a line on disk. Called with the file locked and read to its end."""
        if self.path is None:
            return
        if self._position == _journal.START:
            warnings.warn(f"the ledger {self.path} of version 1 is upgraded to version 2", UserWarning, stacklevel=5)
            self._position = _journal.replace(self.path, self._lines())
        self._position = _journal.append(self.path, line, self._position)

    def _add(self, label: str, charge: Event, times: int) -> None:
        """Put an entry on disk, then count it."""
        self._write(_to_line(str(label), charge, times))
        self._account.add(str(label), charge, times)

    def _open(self, path: Path) -> None:
        """Read the file, or begin it; called once, with the file locked."""
        if _journal.is_new(path):
            self._position = _journal.replace(path, self._lines())
            return
        asked = self.budget
        self._refresh()
        if asked is None:
            return
        if self.budget is None:
            self._write({"budget": list(asked)})
            self._account.budget = asked
        elif asked != self.budget:
            raise ValueError(
                f"the ledger {path} has the budget {self.budget}, not {asked}; open it without a budget to go on "
                "under its own, or start another ledger."
            )

    def _sync(self) -> None:
        """Read what other processes have added since."""
        if self.path is not None:
            with _journal.locked(self.path):
                self._refresh()

    def _refresh(self) -> None:
        if self.path is None:
            return
        before = self._position
        lines, position = _journal.read(self.path, before)
        if before == _journal.START:
            header = _check_header(lines.pop(0), position == _journal.START, self.path)
            self._account = Account(check_rows(header["rows"]), _check_budget(header["budget"]))
            self.h, self._digests = float(header["h"]), set()
        first = (position.entries or len(lines) + 1) - len(lines) + 1
        for number, line in enumerate(lines, first):
            self._take(number, line)
        self._position = position

    def _take(self, number: int, line: dict[str, Any]) -> None:
        try:
            if set(line) == {"drawn"}:
                self._digests.add(str(line["drawn"]))
            elif set(line) == {"budget"}:
                self._account.budget = _check_budget(line["budget"])
            else:
                self._account.add(*_from_line(line))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(
                f"entry {number} of the ledger {self.path} is damaged ({error}); {_journal.RESTORE}."
            ) from error

    def __getstate__(self) -> dict[str, Any]:
        # A ledger with a file is the file: a copy reads it again.
        state = dict(self.__dict__)
        if self.path is not None:
            state.update(_position=_journal.START, _account=Account(self.rows, self.budget), _digests=set())
        return state


def require_guarantee(event: Event, delta: float, rows: Rows = "sequential", *, h: float = PAPER_H) -> float:
    """Return the ε at `delta` of one such draw; refuse a draw for which no finite ε holds for all inputs.

    Parameters
    ----------
    event : Event
    delta : float
    rows : {"sequential", "parallel"} or int
    h : float
        Adjacency where the event states none.

    Examples
    --------
    >>> from dp_ensemble_env.privacy import mechanism
    >>> require_guarantee(mechanism("dirichlet:k=50").event([[0.6, 0.4], [0.3, 0.7]]), 1e-6)
    Traceback (most recent call last):
    ValueError: this draw (k=50, floor=0) has no epsilon that holds for all inputs at delta=1e-06: without a floor no \
bound holds for all inputs, so set a floor.
    """
    ledger = PrivacyLedger(rows=rows, h=h)
    ledger._account.add("", ledger.priced(event), 1)
    epsilon = ledger.spent(delta)
    if not math.isfinite(epsilon):
        raise ValueError(
            f"this draw ({event.headline or event.type}) has no epsilon that holds for all inputs at delta={delta:g}: "
            f"{event.remedy}."
        )
    return epsilon


def _check_header(header: Any, unchained: bool, source: Any = "the text") -> dict[str, Any]:
    if not isinstance(header, dict) or header.get("format") != FORMAT or header.get("version") not in (1, 2):
        raise ValueError(f"{source} {_journal.NO_LEDGER}")
    if unchained and header["version"] != 1:
        raise ValueError(f"entry 1 of the ledger {source} carries no digest; {_journal.RESTORE}.")
    for name in ("budget", "rows", "h"):
        if name not in header:
            raise ValueError(f"the first line of the ledger {source} has no {name!r}; {_journal.RESTORE}.")
    return header


def _to_line(label: str, event: Event, times: int) -> dict[str, Any]:
    """Return the JSON object of one entry."""
    return {"label": label, "times": times, "event": event.to_json()}


def _from_line(line: dict[str, Any]) -> tuple[str, Event, int]:
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


def _check_budget(budget: Any) -> tuple[float, float] | None:
    if budget is None:
        return None
    try:
        epsilon, delta = budget
    except (TypeError, ValueError) as error:
        raise ValueError(f"budget must be a pair (epsilon, delta), got {budget!r}; pass budget=(1.0, 1e-6).") from error
    return check_positive(epsilon, "budget epsilon"), check_delta(delta)


_OF_PROCESS = PrivacyLedger()
