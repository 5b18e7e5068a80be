r"""The Dirichlet mechanism: a private copy of the default behaviour.

Each row :math:`p` of the default matrix is replaced by a draw :math:`x \sim \mathrm{Dir}(k\,p)` on the row's support
(Definition 4 of the paper). The mean of the draw is :math:`p`, its variance :math:`p(1-p)/(k+1)`: a small `k` means
much noise.

* **Logarithms.** A Gamma variate of shape :math:`\alpha = kp \ll 1` is mostly smaller than the smallest double, and an
  exact zero in the output tells which inputs it cannot have come from. Here :math:`\log G = \log G' - E/\alpha` with
  :math:`G' \sim \Gamma(\alpha+1)` and :math:`E \sim \mathrm{Exp}(1)`, so nothing underflows, whatever `k` is.
* **Floor.** With ``floor`` :math:`=\omega > 0` each row is first mixed with the uniform distribution on its support,
  :math:`p' = (1-\tau)p + \tau/|S|` with :math:`\tau = \omega|S|`, so that every entry is at least :math:`\omega`. A
  guarantee that does not depend on the data needs it.

The support is treated as public: the mechanism never moves mass to an entry outside it, so whoever sees the output sees
the support.

**Publication.** A draw from the system's entropy is made by Pólya's urn (`noise.polya_urn`): a row holds whole
numbers of tickets, `weight` in all, and releases ``(balls of a + ½)/(balls + |S|/2)``. That is a function of a
draw of :math:`\mathrm{Dir}(\tilde k\tilde p)` with :math:`\tilde k \le k` and a row :math:`\tilde p` that is rounded to
tickets. Each entry is rounded down, and what is left goes to the first one. So rows that are h apart stay within h and
:math:`2|S|` tickets, with a least entry that is smaller by `SLACK` tickets; the claim is computed with both. Of two
rows that differ in two entries the first entry may become a third, by at most two tickets: the dominating pair covers
the one step, and `rounding_loss` bounds the other for *every* outcome, so the accountant adds it to ε.

What a draw costs: row `b` with ``|S_b|`` successors, drawn with floor ω, is the dominating pair of
`accounting.divergence` with least entry ω and adjacency ``(1 − ω|S_b|) h_b``: mixing with the uniform row shrinks the
difference of two inputs by that factor. A row with one successor reveals nothing and costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_ensemble_env.privacy.accounting.divergence import ENTRIES, Entries
from dp_ensemble_env.privacy.accounting.losses import Loss, Losses, NoBound, RowLoss
from dp_ensemble_env.privacy.adjacency import COUNTS_ARE_DATA, H_SOURCES, Adjacency, DeviceChain, NeighboringRelation
from dp_ensemble_env.privacy.mechanisms.base import Event, Mechanism, Permit, Seeding
from dp_ensemble_env.privacy.mechanisms.noise import FloatArray, polya_urn
from dp_ensemble_env.privacy.release import Release
from dp_ensemble_env.tools.validation import (
    as_float_array,
    check_choice,
    check_count,
    check_in_range,
    check_positive,
    check_rng,
    check_stochastic,
)

PAPER_H = 0.03  #: The adjacency of the paper's case study, taken where none is given, and always printed.
TICKETS, BALLS = 2**46, 2**14  #: Tickets of a published row, and balls drawn from its urn.
SLACK = 4  #: Tickets by which rounding may lower the least entry of a row.


@dataclass(frozen=True)
class DirichletEvent(Event, type="dirichlet"):
    """A draw of the Dirichlet mechanism: its settings, the sizes of the public support's rows, and the adjacency."""

    k: float
    floor: float
    successors: tuple[int, ...]  #: Number of possible decisions of every row, times first, then contexts.
    #: Adjacency of the true rows (before the floor shrinks it): one for all or one each. Empty: the ledger's own.
    h: tuple[float, ...] = ()
    entries: Entries = "two"  #: Whether adjacent rows differ in two entries or in any number.
    #: Whether h was stated, or computed from private counts (perhaps of devices) and so must not be published.
    h_source: str = "stated"
    steps: int = 1  #: Number of matrices, one for each time and context; one unit may affect rows of each.
    balls: int = 0  #: Of a published draw: balls drawn from the urn of each row.
    weight: int = 0  #: Tickets that the urn holds at the start.

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self.k, "k")
        check_in_range(self.floor, "floor", 0, 1)
        check_choice(self.entries, "entries", ENTRIES)
        check_choice(self.h_source, "h_source", H_SOURCES)
        for name in ("successors", "h"):
            if not isinstance(getattr(self, name), (tuple, list)):
                raise ValueError(f"{name} must be a tuple with one number a row, got {getattr(self, name)!r}.")
        sizes = tuple(check_count(size, "successors") for size in self.successors)
        if any(self.floor * size > 1 + 1e-12 for size in sizes):
            raise ValueError(f"floor={self.floor:g} does not fit rows of {max(sizes)} successors; lower it.")
        if len(sizes) % check_count(self.steps, "steps"):
            raise ValueError(f"{len(sizes)} rows cannot belong to {self.steps} matrices of equal size; correct steps.")
        if len(self.h) not in (0, 1, len(sizes)):
            raise ValueError(f"h has {len(self.h)} values for {len(sizes)} rows; give one number or one per row.")
        object.__setattr__(self, "h", tuple(check_in_range(value, "h", 0, 2) for value in self.h))
        object.__setattr__(self, "successors", sizes)

    def under(self, h: Any = None, entries: str | None = None) -> DirichletEvent:
        """Return the same draw under the adjacency `h`: a number, one per row, or an `Adjacency`."""
        if h is None and entries is None:
            return self
        wide = isinstance(h, Adjacency)
        source = h.source if wide else self.h_source if h is None else "stated"
        h = (self.h or PAPER_H) if h is None else h
        values = np.atleast_1d(np.asarray(h.h if wide else h, dtype=float))
        if values.ndim != 1 or not ((values >= 0) & (values <= 2)).all():
            raise ValueError("h must be a number in [0, 2] or one per row: it is an L1 distance of two rows.")
        count = len(self.successors)
        if len(values) > 1 and len(values) != count:
            if count % len(values):
                raise ValueError(f"h has {len(values)} values for {count} rows; give one number or one per row.")
            values = np.tile(values, count // len(values))  # the same states at every time and in every context
        chosen = check_choice(("any" if wide else "two") if entries is None else entries, "entries", ENTRIES)
        return replace(self, h=tuple(values.tolist()), entries=cast(Entries, chosen), h_source=source)

    @property
    def drawn(self) -> DirichletEvent:
        """The draw itself, that is settings, support and seeding, without the adjacency."""
        return replace(self, h=(), entries="two", h_source="stated")

    def stream_key(self) -> dict[str, Any]:
        """Return the fields hashed into the stream of a seeded draw; frozen, see `Event.stream_key`."""
        settings = {"type": "dirichlet", "k": self.k, "floor": self.floor, "seeding": self.seeding}
        support = {"successors": self.successors, "steps": self.steps}  # a published draw has no stream to fix
        return {**settings, **support, "h": (), "entries": "two", "h_source": "stated"}

    @property
    def concentration(self) -> float:
        """The mechanism's k, or the urn's for a published draw."""
        weight, added = urn(self.k)
        return weight / added if self.weight else self.k

    def losses(self) -> Losses:
        """Return the losses of the drawn rows; an event without an h takes the paper's."""
        by_matrix: list[dict[Loss, int]] = []
        k, least, entries, more = self.concentration, self.least, self.entries, 0.0
        if self.weight and least > 0 and entries == "two":
            more = rounding_loss(k, self.weight, least, self.balls)
        for moved in self.moved.reshape(self.steps, -1):
            sizes, numbers = np.unique(moved[moved > 0], return_counts=True)
            pairs = zip(sizes[::-1].tolist(), numbers[::-1].tolist(), strict=True)
            if least > 0:
                by_matrix.append({RowLoss(k, least, h, entries, more): number for h, number in pairs})
            elif len(sizes):
                by_matrix.append({NoBound(): int(numbers.sum())})
        return Losses.of(*by_matrix)

    @property
    def relation(self) -> NeighboringRelation:  # type: ignore[override]
        """One participant if the adjacency comes from devices, else rows that change by h."""
        devices = self.h_source == "devices"
        return NeighboringRelation.ADD_OR_REMOVE_ONE if devices else NeighboringRelation.CHANGE_ROWS

    @property
    def public(self) -> DirichletEvent:
        """The event, without an h that was computed from private counts."""
        return self if self.h_source == "stated" else self.drawn

    @property
    def least(self) -> float:
        """Smallest entry of the mechanism's input: the floor, reduced by the rounding of a published draw."""
        return max(0.0, self.floor - SLACK / self.weight) if self.weight and self.floor else self.floor

    @property
    def moved(self) -> FloatArray:
        """Adjacency of every row of the mechanism's input, -1 for a row with one successor, which is not drawn."""
        sizes = np.array(self.successors, dtype=float)
        moved = np.broadcast_to(np.array(self.h or (PAPER_H,)), sizes.shape)
        left = np.maximum(0.0, 1.0 - self.floor * sizes) * moved
        if self.weight:  # rounding to tickets moves a row, too
            left = np.where(left > 0, np.minimum(left + 2.0 * sizes / self.weight, 2.0), left)
        return np.where(sizes > 1, np.where(left > 1e-15, left, 0.0), -1.0)

    @property
    def bare(self) -> bool:
        """Whether no bound holds for all inputs, because there is no floor."""
        return self.floor == 0 and bool((self.moved > 0).any())

    @property
    def remedy(self) -> str:  # type: ignore[override]
        """What to do when a budget does not allow the draw."""
        smaller = "use an earlier release (post-processing is free), or a smaller k"
        return smaller if self.floor > 0 else "without a floor no bound holds for all inputs, so set a floor"

    @property
    def headline(self) -> str:
        """The settings in a few words."""
        return f"k={self.k:g}, floor={self.floor:g}"

    @classmethod
    def claims(cls, events: Sequence[DirichletEvent], rows: str | int) -> tuple[str, list[str]]:
        """Name settings, adjacency, composition, assumptions and warnings of Dirichlet draws."""
        ks = sorted({event.k for event in events})
        settings = f" at k={ks[0]:.6g}" if len(ks) == 1 else f" at k={ks[0]:.6g} to {ks[-1]:.6g}"
        sizes = [value for event in events for value in event.h or (PAPER_H,)]
        low, high = min(sizes), max(sizes)
        h = f"h={high:.4g}" if low == high else f"h={low:.4g} to {high:.4g}"
        entries = "any entries" if any(event.entries == "any" for event in events) else "two entries"
        most = max(int((event.moved >= 0).sum()) for event in events)
        how = {"sequential": f"all {most} drawn rows compose", "parallel": "a unit touches one row of each matrix"}
        least = min(event.floor for event in events)
        terms = [
            f"adjacent rows differ in {entries} by {h} in L1 distance",
            how.get(str(rows), f"a unit touches at most {rows} rows of each matrix"),
            "assumes a public support" + (f" and floor {least:.4g}" if least > 0 else ""),
        ]
        if any(event.balls for event in events):
            terms.append(f"published rows are drawn by Pólya's urn, {max(e.balls for e in events)} balls each")
        sources = {event.h_source for event in events}
        terms += [text for source, texts in H_SOURCES.items() if source in sources for text in texts]
        return settings, terms + [COUNTS_ARE_DATA] * (sources != {"stated"})


def urn(k: float) -> tuple[int, int]:
    """Return the tickets of a row at the start, and the tickets that a ball adds: their ratio is k, rounded down."""
    return (TICKETS, max(1, math.ceil(TICKETS / k))) if k >= 1 else (max(1, math.floor(k * TICKETS)), TICKETS)


def rounding_loss(k: float, weight: int, least: float, balls: int) -> float:
    r"""Return how much the logarithm of any outcome's probability moves when two tickets change hands.

    A colour with the parameter :math:`\alpha` that is drawn n times contributes
    :math:`\alpha(\alpha+1)\cdots(\alpha+n-1)` to the probability of the numbers of balls. With t more it grows by at
    most :math:`t\sum 1/(\alpha+i) \le t(1/\alpha + \log(1 + n/\alpha))` in logarithms; the other colour loses it.
    """
    alpha, moved = k * least, 2.0 * k / weight
    return moved * (1.0 / alpha + math.log1p(balls / alpha))


def rounded(row: FloatArray, weight: int) -> list[int]:
    """Return the tickets of a row of positive entries, `weight` in all."""
    tickets = [int(math.floor(share * weight)) for share in row.tolist()]
    tickets[0] += weight - sum(tickets)
    return tickets


@dataclass(frozen=True)
class DirichletMechanism(Mechanism):
    """Draw private copies of a transition matrix.

    With a larger concentration `k` a copy is closer to the true matrix and less private. Every entry of the support is
    raised to at least `floor`; without a floor no guarantee holds for all inputs. `h` is the adjacency of the true rows
    under which a draw is charged, by default the ledger's; it does not change the draw.
    """

    name: ClassVar[str] = "dirichlet"
    k: float
    floor: float = 0.0
    h: float | None = None

    def __post_init__(self) -> None:
        check_positive(self.k, "k", remedy="the larger k, the less noise")
        check_in_range(self.floor, "floor", 0, 1, open_high=True)
        if self.h is not None:
            check_in_range(self.h, "h", 0, 2, remedy="h is the L1 distance of two rows; the paper uses 0.03")

    def event(
        self,
        data: Any,
        *,
        seeding: Seeding = "os-entropy",
        support: Any = None,
        h: Any = None,
        entries: Any = None,
        clip: Any = None,
    ) -> DirichletEvent:
        """Describe a draw from a matrix; only its support is read, which counts as public.

        The support is the nonzero entries unless it is declared; h and entries are the adjacency, by default the
        mechanism's (`DirichletEvent.under`). A fleet is pooled, with at most `clip` decisions of each participant in
        a row (`Fleet.chain`); the adjacency is then one participant.
        """
        h = self.h if h is None else h
        inputs, chain = self._inputs(data, support, clip)  # refuses what cannot be drawn
        if chain is not None and h is None:
            h = chain.adjacency
        return self._event(inputs > 0, seeding).under(h, entries)

    def draw(
        self, data: Any, permit: Permit, *, support: Any = None, h: Any = None, entries: Any = None, clip: Any = None
    ) -> Release:
        """Draw one private matrix; h and entries are claims about it."""
        inputs, chain = self._inputs(data, support, clip)
        permit.covers(self._event(inputs > 0, permit.event.seeding))
        published = permit.event.seeding == "os-entropy"
        log_matrix = self._published(inputs) if published else _log_dirichlet(self.k, inputs, permit.rng)
        return Release(log_matrix if chain is None else cast(Any, data).spread(log_matrix), permit.event)

    def _inputs(self, data: Any, support: Any, clip: int | None) -> tuple[FloatArray, DeviceChain | None]:
        """Return the rows that are drawn from, and of a fleet the chain that it is pooled into."""
        pool = getattr(data, "chain", None)  # asked for by name: importing Fleet takes seconds
        if pool is None:
            return self.floored(data, support), None
        if support is None or clip is None:
            raise ValueError(
                "the Dirichlet mechanism protects a participant only with a support that is public, since it shows it; "
                "draw with gaussian:epsilon=1 for example, or in Python declare it, support=, and bound what one "
                "participant contributes to a row, clip=."
            )
        chain = pool(clip, support)
        return self.floored(chain.default, chain.support), chain

    def _event(self, drawn: NDArray[np.bool_], seeding: Seeding) -> DirichletEvent:
        steps = int(np.prod(drawn.shape[:-2]))
        sizes = tuple(drawn.sum(axis=-1).ravel().tolist())
        event = DirichletEvent(float(self.k), float(self.floor), sizes, seeding=seeding, steps=steps)
        return replace(event, balls=BALLS, weight=urn(self.k)[0]) if seeding == "os-entropy" else event

    def _published(self, inputs: FloatArray) -> FloatArray:
        """Draw every row from its urn, and return the logarithms."""
        weight, added = urn(self.k)
        counts = np.zeros(inputs.shape)
        for place in np.ndindex(inputs.shape[:-1]):
            cells = np.flatnonzero(inputs[place])
            counts[place][cells] = polya_urn(rounded(inputs[place][cells], weight), added, BALLS) + 0.5
        with np.errstate(divide="ignore"):
            return _normalised(np.log(counts))

    def floored(self, default: ArrayLike, support: ArrayLike | None = None) -> FloatArray:
        """Return the mechanism's input: `default` mixed with uniform rows so that entries are >= floor."""
        matrix = check_stochastic(default, square=False)
        allowed = matrix > 0 if support is None else np.asarray(support)
        if allowed.dtype != bool or allowed.shape != matrix.shape:
            given = f"{allowed.dtype} {allowed.shape}"
            raise ValueError(f"support must be a boolean array of shape {matrix.shape}, got {given}.")
        if (outside := np.argwhere(~allowed & (matrix > 0))).size:
            raise ValueError(
                f"the transition {tuple(map(int, outside[0]))} has positive probability but lies outside the public "
                "support; widen the support, or leave the transition out of the estimate."
            )
        size = allowed.sum(axis=-1, keepdims=True)
        mixing = self.floor * size
        if (mixing > 1).any():
            row = np.argwhere(mixing[..., 0] > 1)[0]
            raise ValueError(
                f"floor={self.floor:g} cannot hold for row {int(row[-1])}, which has {int(size[tuple(row)][0])} "
                f"successors; choose a floor of at most {1 / size.max():.4g}."
            )
        return np.where(allowed, (1.0 - mixing) * matrix + self.floor, 0.0)

    def sample_log(self, row: ArrayLike, size: int, rng: np.random.Generator | int) -> FloatArray:
        """Draw `size` private copies of one row, as logarithms of shape (size, len(row))."""
        size = check_count(size, "size")
        generator = check_rng(rng)
        inputs = self.floored(as_float_array(row, "row", 1)[None])[0]
        return _log_dirichlet(self.k, np.broadcast_to(inputs, (size, len(inputs))), generator)


def _log_dirichlet(k: float, rows: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Draw each row from Dir(k · row) on its positive entries; logarithms."""
    logs = np.full(rows.shape, -np.inf)
    drawn = rows > 0
    logs[drawn] = log_gamma_variates(k * rows[drawn], rng)
    return _normalised(logs)


def _normalised(logs: FloatArray) -> FloatArray:
    return np.minimum(logs - np.logaddexp.reduce(logs, axis=-1, keepdims=True), 0.0)


def log_gamma_variates(shape: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Draw logarithms of Gamma(shape, 1) variates that neither underflow nor vanish."""
    # G(a) = G(a+1) U^(1/a) in distribution, and -log U is a standard exponential.
    return np.log(rng.standard_gamma(shape + 1.0)) - rng.standard_exponential(shape.shape) / shape
