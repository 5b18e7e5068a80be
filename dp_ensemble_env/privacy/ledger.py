"""A ledger of every release: what was spent, and whether the next one may be drawn.

What is charged is the event of a draw, before the draw is made: `PrivacyLedger.charge` refuses it, or puts it on record
and returns the permit without which no mechanism draws. `PrivacyLedger.release` does it all, and notes the digest of
the release. Charges compose over draws (N samples are N releases, E9) and, for the Dirichlet mechanism, over rows:

* ``rows="sequential"``: one unit's data may touch every row, so all compose (E10);
* ``rows="parallel"``: it touches one row of each matrix, the worst is charged;
* ``rows=R``: it touches at most R rows of each matrix.

Solving, simulating or training on a released matrix is post-processing and free. A policy that is a deterministic
function of the *true* matrix (Taylor, Digamma; E8) is a disclosure: ε = ∞, as for a draw without a floor.

Kept are settings, the public support's row sizes, h, the losses that follow from them, and what was declared to be
public. If h came from counts, what leaves (`to_json`, a copied environment) goes without that h.

**What spends cannot be copied.** A copy within the process is the ledger itself, a ledger with a file is opened again,
and what leaves the process without a file is a *record*, which refuses every charge.

**It fails closed.** An entry is on disk *before* the draw it pays for is made; `journal` tells the order of the writes
and what is refused. A process that is killed, or races another, may leave an entry whose draw was never made, and never
a draw without its entry.
"""

from __future__ import annotations

import hmac
import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dp_ensemble_env.privacy import journal
from dp_ensemble_env.privacy.accounting.compose import Accountant
from dp_ensemble_env.privacy.accounting.divergence import check_delta
from dp_ensemble_env.privacy.accounting.losses import Rows, check_rows
from dp_ensemble_env.privacy.mechanisms.base import (
    Disclosure,
    Event,
    Mechanism,
    Permit,
    Rng,
    check_terms,
    seeding_of,
    stream_identity,
    stream_of,
)
from dp_ensemble_env.privacy.mechanisms.dirichlet import PAPER_H, DirichletEvent
from dp_ensemble_env.privacy.release import Release
from dp_ensemble_env.tools.validation import check_count, check_in_range, check_positive

if TYPE_CHECKING:
    from dp_ensemble_env.privacy.statement import PrivacyCard

#: Terms of a draw, and fields of its model, that are public because somebody says so.
TERMS_DECLARED, FIELDS_DECLARED = ("guess", "support"), ("guess", "support", "ties")
NAMED = "environment release "  #: How the label of a draw begins that an environment has named.
_DRAWN = "the release was drawn already and is on record, but"


class PrivacyBudgetExceeded(ValueError):  # noqa: N818 - the name says what happened
    """A release would spend more than the ledger's budget."""


class PrivacyLedger:
    """Record every release of a private matrix, and add up their privacy cost.

    Parameters
    ----------
    path : path, optional
        File of the ledger, which processes may share; its entries are read.
    budget : (epsilon, delta), optional
        Refuse a draw that would exceed it.
    rows : {"sequential", "parallel"} or int, optional
        Default for how rows compose: as in the file, else ``"sequential"``.
    h : float, optional
        Adjacency of a release recorded without one. Default: as in the file, else 0.03.

    Examples
    --------
    >>> from dp_ensemble_env.privacy import mechanism
    >>> noise = mechanism("dirichlet:k=50,floor=0.1")
    >>> default = [[0.6, 0.4], [0.3, 0.7]]
    >>> ledger = PrivacyLedger(budget=(2.0, 1e-3))
    >>> release = ledger.release(noise, default, rng=0, h=0.03)
    >>> round(ledger.get_epsilon(1e-3), 2), round(ledger.get_epsilon(1e-3, rows="parallel"), 2)
    (1.56, 1.05)
    >>> ledger.would_exceed(release.event)
    True
    >>> ledger.release(noise, default, rng=1, h=0.03)
    Traceback (most recent call last):
    dp_ensemble_env.privacy.ledger.PrivacyBudgetExceeded: this release would bring the total to epsilon=2.336 at \
delta=0.001, above the budget of 2; use an earlier release (post-processing is free), or a smaller k.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        budget: tuple[float, float] | None = None,
        *,
        rows: Rows | None = None,
        h: float | None = None,
    ) -> None:
        self.path = None if path is None else Path(path)
        self._start("sequential" if rows is None else rows, budget, PAPER_H if h is None else h)
        self._position = journal.START
        self._is_record = False
        if self.path is not None:
            with journal.locked(self.path):
                self._open(self.path)
        for name, asked, own in (("rows", rows, self.rows), ("h", h, self.h)):
            if asked is not None and asked != own:
                raise ValueError(
                    f"the ledger {path} has {name}={own!r}, not {asked!r}; open it without {name} to go on under its "
                    "own, or start another ledger."
                )

    def _start(self, rows: Any, budget: Any, h: Any) -> None:
        self._accountant = Accountant(check_rows(rows), check_budget(budget))
        self.h = check_in_range(h, "h", 0, 2)
        self._log: list[tuple[str, Event, int]] = []
        self._digests: set[str] = set()
        self._declared: list[str] = []

    @staticmethod
    def of_process() -> PrivacyLedger:
        """Return the ledger in memory that environments of this process share by default."""
        return _OF_PROCESS

    @property
    def budget(self) -> tuple[float, float] | None:
        """The (epsilon, delta) that must not be exceeded, if there is one."""
        return self._accountant.budget

    @property
    def rows(self) -> Rows:
        """How rows compose, unless a call says otherwise."""
        return self._accountant.rows

    # ------------------------------------------------------------ recording
    def charge(
        self, event: Event, label: str = "", *, times: int = 1, rng: Rng = None, data: Any = None, **terms: Any
    ) -> Permit:
        """Record `times` equal, independent draws before they are made, and return the permit to make them.

        Without `rng` the permit draws from the operating system's entropy. With a seed or a Generator the random stream
        depends on the `data` and the public `terms` of the draw too, so that no two draws share one. What exceeds the
        budget is not recorded, but refused as `PrivacyBudgetExceeded`.
        """
        event = self.priced(event)
        if event.random and event.seeding != seeding_of(rng):
            raise ValueError(
                f"the event is of a draw seeded by {event.seeding!r}, but rng={rng!r} was given; make both agree."
            )
        identity = stream_identity(event, rng, data, terms)
        self._record(event, label, check_count(times, "times"))
        return Permit(event, stream_of(rng, identity), times)

    def release(self, mechanism: Mechanism, data: Any, rng: Rng = None, *, label: str = "", **terms: Any) -> Release:
        """Charge a draw from `data`, then make it.

        `rng` is a Generator or a seed, by default the operating system's entropy; `label` states the purpose of the
        release; `terms` are public terms of the draw, such as ``support=`` and ``h=``.
        """
        check_terms(mechanism, terms)
        event = mechanism.event(data, seeding=seeding_of(rng), **terms)
        permit = self.charge(event, label, rng=rng, data=data, **terms)
        self.declare(*getattr(data, "declared", ()), *_declared_by(terms))
        release = mechanism.draw(data, permit, **terms)
        self._note(release.digest)
        return release

    def record(self, release: Release | Event, h: Any = None, label: str = "", *, times: int = 1) -> PrivacyLedger:
        """Charge `times` equal releases that were drawn elsewhere, or an event; return the ledger itself.

        An event that would exceed the budget is refused. A `Release` exists already, so it is recorded in any case, and
        `PrivacyBudgetExceeded` is raised afterwards. `h` is the adjacency of the true rows, by default the ledger's:
        one number, one per row, or the result of `adjacency_from_counts`, for moves of any entries.
        """
        event, times = self._event_of(release, h), check_count(times, "times")
        self._record(event, label, times, _DRAWN if isinstance(release, Release) else "")
        if isinstance(release, Release):
            self._note(release.digest)
        return self

    def record_deterministic(self, label: str = "") -> PrivacyLedger:
        """Record the publication of a deterministic function of the true data (E8): ε is infinite from now on."""
        self._record(Disclosure(), label, 1, "the disclosure is on record, but it")
        return self

    def declare(self, *what: str) -> PrivacyLedger:
        """Record fields declared public, such as ``"levels"``; they are believed, not checked, and printed with ε."""
        for one in what:
            with self._current():
                if one not in self._declared:
                    self._write({"declared": one})
                    self._declared.append(one)
        return self

    def would_exceed(self, release: Release | Event, *, times: int = 1) -> bool:
        """Tell whether `times` such releases would exceed the budget; nothing is recorded."""
        event = self._event_of(release)
        with self._current() as accountant:
            return accountant.would_exceed(event, check_count(times, "times"))

    def knows(self, release: Release) -> bool:
        """Tell whether the release was drawn under this ledger, or recorded in it."""
        self._read()
        return release.digest in self._digests

    def has(self, label: str, event: Event) -> bool:
        """Tell whether a draw with exactly this label and event is on record."""
        return any((label, event) == known[:2] for known in self.entries)

    def name_of(self, draw: str) -> str:
        """Return a name for a seeded draw: repetitions get the same name, which reveals nothing without our key.

        With a plain hash, anyone who guesses the seed could tell data sets apart. The key belongs to the process, or
        lies beside the ledger's file (``<name>.key``).
        """
        return NAMED + hmac.new(journal.key_of(self.path), draw.encode(), "sha256").hexdigest()[:16]

    def adopt(self, label: str, event: Event, digest: str) -> PrivacyLedger:
        """Count a draw that was charged elsewhere, unless it is known here; return the ledger itself.

        Different draws may give the same release, and each costs, so a draw with a name is identified by its name.
        """
        self._read()
        named = label.startswith(NAMED) and not any(label == known for known, _, _ in self.entries)
        if named or digest not in self._digests:
            self._record(self.priced(event), label, 1, _DRAWN)
            self._note(digest)
        return self

    def priced(self, event: Event) -> Event:
        """Return the event to charge: with the ledger's adjacency if a Dirichlet draw states none."""
        return event.under(self.h) if isinstance(event, DirichletEvent) and not event.h else event

    def _event_of(self, release: Release | Event, h: Any = None) -> Event:
        if not isinstance(release, (Release, Event)):
            raise ValueError(
                f"record takes a Release or an Event, got {type(release).__name__}; for a policy computed from the "
                "true matrix call record_deterministic; one computed from a release is free."
            )
        return self.priced((release.event if isinstance(release, Release) else release).under(h))

    def _record(self, event: Event, label: str, times: int, happened: str = "") -> None:
        """Record a draw that fits the budget, or one that has `happened` already and may then be refused."""
        label = str(label)
        if self._is_record:
            raise ValueError(
                "this is a copy of a ledger, which cannot spend; charge the original, or keep it in a file that "
                "several processes share: PrivacyLedger(path)."
            )
        with self._current() as accountant:
            over = accountant.excess(event, times)
            if over is None or happened:
                self._write(journal.to_line(label, event, times))
                self._count(label, event, times)
        if over is not None:
            raise PrivacyBudgetExceeded(f"{happened or 'this release'} {over}")

    def _count(self, label: str, event: Event, times: int) -> None:
        self._accountant.compose(event, times)
        if self._log and self._log[-1][:2] == (label, event):
            self._log[-1] = (label, event, self._log[-1][2] + times)
        else:
            self._log.append((label, event, times))

    def _note(self, digest: str) -> None:
        """Keep the digest of a release that was paid for."""
        with self._current():
            if digest not in self._digests:
                self._write({"drawn": digest})
                self._digests.add(digest)

    # ------------------------------------------------------------ the file
    @contextmanager
    def _current(self) -> Iterator[Accountant]:
        """Hold the lock, having read what other processes have added since."""
        with journal.locked(self.path):
            self._refresh()
            yield self._accountant

    def _read(self) -> Accountant:
        """Read what other processes have added since, and let go of the lock."""
        with self._current() as accountant:
            return accountant

    def _header(self) -> journal.Line:
        budget = None if self.budget is None else list(self.budget)
        return {"format": journal.FORMAT, "version": journal.VERSION, "budget": budget, "rows": self.rows, "h": self.h}

    def _write(self, line: journal.Line) -> None:
        """Put a line on disk, before what it says is counted. Called within `_current`."""
        if self.path is not None:
            self._position = journal.append(self.path, line, self._position)

    def _open(self, path: Path) -> None:
        if journal.is_new(path):
            self._position = journal.begin(path, self._header())
            return
        asked = self.budget
        self._refresh()
        if asked is not None and self.budget is None:
            self._write({"budget": list(asked)})
            self._accountant.budget = asked
        elif asked is not None and asked != self.budget:
            raise ValueError(
                f"the ledger {path} has the budget {self.budget}, not {asked}; open it without a budget to go "
                "on under its own, or start another ledger."
            )

    def _refresh(self) -> None:
        if self.path is None:
            return
        lines, position = journal.read(self.path, self._position)
        if self._position == journal.START:
            header = journal.check_header(lines.pop(0), self.path)
            self._start(header["rows"], header["budget"], header["h"])
        for number, line in enumerate(lines, position.entries - len(lines) + 1):
            try:
                self._take(line)
            except (KeyError, TypeError, AttributeError, ValueError) as error:
                reason = str(error).rstrip(".")
                raise ValueError(
                    f"entry {number} of the ledger {self.path} is damaged ({reason}); {journal.RESTORE}."
                ) from error
        self._position = position

    def _take(self, line: journal.Line) -> None:
        if set(line) == {"drawn"}:
            self._digests.add(str(line["drawn"]))
        elif set(line) == {"declared"}:
            self._declared.append(str(line["declared"]))
        elif set(line) == {"budget"}:
            self._accountant.budget = check_budget(line["budget"])
        else:
            self._count(*journal.from_line(line))

    # ------------------------------------------------------------ copies
    def __copy__(self) -> PrivacyLedger:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> PrivacyLedger:
        return self  # a copy would allow the budget to be spent twice

    def __reduce__(self) -> tuple[Any, ...]:
        if self.path is not None:  # a ledger with a file is the file
            return PrivacyLedger, (self.path,)
        return PrivacyLedger.from_json, (self.to_json(),)

    def to_json(self) -> str:
        """Return the ledger as JSON text for publication; the ledger's own h replaces one computed from counts."""
        lines = [journal.to_line(label, self.priced(event.public), times) for label, event, times in self.entries]
        extra = {"entries": lines, "drawn": sorted(self._digests), "declared": self._declared}
        return json.dumps({**self._header(), **extra}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> PrivacyLedger:
        """Read JSON from `to_json`: a record of the privacy spent, which refuses every charge."""
        try:
            content = json.loads(text)
            journal.check_header(content)
            ledger = cls(budget=content["budget"], rows=content["rows"], h=content["h"])
            for line in content["entries"]:
                ledger._take(line)
            ledger._digests.update(map(str, content["drawn"]))
            ledger._declared.extend(map(str, content["declared"]))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"this is not a ledger ({error}); pass what PrivacyLedger.to_json wrote.") from error
        ledger._is_record = True
        return ledger

    # ------------------------------------------------------------ reading
    def get_epsilon(self, delta: float, rows: Rows | None = None) -> float:
        """Return the ε at `delta` of everything recorded; infinity where no guarantee holds for all inputs."""
        return self._read().get_epsilon(check_delta(delta), rows)

    def get_delta(self, epsilon: float, rows: Rows | None = None) -> float:
        """Return the δ at `epsilon` of everything recorded; 1 if no guarantee holds for all inputs."""
        return self._read().get_delta(epsilon, rows)

    spent = get_epsilon  #: The ε at `delta` of everything recorded, by its shorter name.

    def remaining(self, rows: Rows | None = None) -> float:
        """Return how much ε is left at the budget's δ (infinity without a budget)."""
        return math.inf if self.budget is None else max(0.0, self.budget[0] - self.get_epsilon(self.budget[1], rows))

    def statement(self, delta: float | None = None, rows: Rows | None = None) -> PrivacyCard:
        """Return the privacy card at `delta`, by default the budget's or 1e-6; it prints as one line."""
        from dp_ensemble_env.privacy.statement import PrivacyCard

        return PrivacyCard.of(self, delta, self.rows if rows is None else rows)

    def __str__(self) -> str:
        return str(self.statement())

    def __repr__(self) -> str:
        return f"PrivacyLedger({self.releases} releases, path={self.path}, budget={self.budget})"

    @property
    def entries(self) -> tuple[tuple[str, Event, int], ...]:
        """The entries in order: label, event, number of equal draws in a row."""
        self._read()
        return tuple(self._log)

    @property
    def charges(self) -> dict[Event, int]:
        """How often each different event was charged."""
        return dict(self._read().charges)

    @property
    def declared(self) -> tuple[str, ...]:
        """Fields declared public; believed, not checked."""
        self._read()
        return tuple(self._declared)

    @property
    def releases(self) -> int:
        """Number of matrices drawn."""
        return sum(times for _, charge, times in self.entries if charge.draws)


def require_guarantee(event: Event, delta: float, rows: Rows = "sequential", *, h: float = PAPER_H) -> float:
    """Return the ε at `delta` of one such draw; refuse a draw for which no finite ε holds for all inputs.

    `h` is the adjacency where the event states none.
    """
    epsilon = PrivacyLedger(rows=rows, h=h).record(event).spent(delta)
    if not math.isfinite(epsilon):
        raise ValueError(
            f"this draw ({event.headline or event.type}) has no epsilon that holds for all inputs at delta={delta:g}: "
            f"{event.remedy}."
        )
    return epsilon


def _declared_by(terms: Mapping[str, Any]) -> list[str]:
    """Name what the terms of a draw take as public, the fields of a model among them."""
    names, model = [name for name in TERMS_DECLARED if terms.get(name) is not None], terms.get("model")
    if model is not None:
        names += [*model.public_fields, *(name for name in FIELDS_DECLARED if getattr(model, name) is not None)]
    return names


def check_budget(budget: Any) -> tuple[float, float] | None:
    """Check a pair (epsilon, delta)."""
    if budget is None:
        return None
    try:
        epsilon, delta = budget
    except (TypeError, ValueError) as error:
        raise ValueError(f"budget must be a pair (epsilon, delta), got {budget!r}; pass budget=(1.0, 1e-6).") from error
    return check_positive(epsilon, "budget epsilon"), check_delta(delta)


_OF_PROCESS = PrivacyLedger()
