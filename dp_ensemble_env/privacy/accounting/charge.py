"""What a release costs: the settings its price depends on, and nothing of the matrix but its support.

Row `b` with ``|S_b|`` successors, drawn with floor ω, is the dominating pair of
`divergence` with least entry ω and adjacency ``(1 − ω|S_b|) h_b``: mixing with the
uniform row shrinks the difference of two inputs by that factor. A row with one
successor reveals nothing and costs nothing.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_ensemble_env._validation import check_choice, check_count, check_in_range, check_positive
from dp_ensemble_env.privacy.accounting.composition import RowGroup
from dp_ensemble_env.privacy.accounting.divergence import ENTRIES, Entries
from dp_ensemble_env.privacy.mechanisms.dirichlet import SEEDINGS, DirichletMechanism, Release
from dp_ensemble_env.privacy.participants import Adjacency

Rows = str | int
KINDS = ("release", "deterministic", "post-processing")


@dataclass(frozen=True)
class ReleasePlan:
    """A release before it is drawn: all that its price depends on, and nothing of the matrix but its support.

    Attributes
    ----------
    k, floor : float
    successors : tuple of int
        Number of possible successors of every row, in order (rows of a
        time-dependent matrix one time after the other).
    seeding : {"os-entropy", "seed", "generator"}
    """

    k: float
    floor: float
    successors: tuple[int, ...]
    seeding: str = "os-entropy"

    def __post_init__(self) -> None:
        check_positive(self.k, "k")
        check_in_range(self.floor, "floor", 0, 1)
        check_choice(self.seeding, "seeding", SEEDINGS)
        if any(size < 1 or self.floor * size > 1 + 1e-12 for size in self.successors):
            raise ValueError(f"floor={self.floor:g} does not fit rows of {max(self.successors)} successors; lower it.")

    @classmethod
    def of(
        cls, mechanism: DirichletMechanism, matrix: ArrayLike, rng: Any = None, support: ArrayLike | None = None
    ) -> ReleasePlan:
        """Plan a release of `matrix` (only its support is looked at) by `mechanism` with `rng`."""
        allowed = np.asarray(matrix) > 0 if support is None else np.asarray(support, dtype=bool)
        seeding = "os-entropy" if rng is None else "generator" if isinstance(rng, np.random.Generator) else "seed"
        return cls(float(mechanism.k), float(mechanism.floor), _row_sizes(allowed), seeding)

    @classmethod
    def from_release(cls, release: Release) -> ReleasePlan:
        """Describe a release that was drawn."""
        return cls(float(release.k), float(release.floor), _row_sizes(release.support), release.seeding)


def _row_sizes(support: NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(int(size) for size in support.sum(axis=-1).ravel())


@dataclass(frozen=True)
class Charge:
    """What one release costs: equal charges are counted, not repeated.

    Attributes
    ----------
    kind : {"release", "deterministic", "post-processing"}
    k, floor, successors, seeding
        As in `ReleasePlan` (empty for the other kinds).
    h : tuple of float
        Adjacency, one for all rows or one per row.
    entries : {"two", "any"}
        Whether adjacent rows differ in two entries or in any number.
    h_source : {"stated", "counts", "devices"}
        Whether h was stated, or computed from private counts (then it is not to
        be published), and these from individual devices.
    """

    kind: str = "release"
    k: float = 0.0
    floor: float = 0.0
    successors: tuple[int, ...] = ()
    seeding: str = "os-entropy"
    h: tuple[float, ...] = ()
    entries: Entries = "two"
    h_source: str = "stated"

    @property
    def row_h(self) -> NDArray[np.float64]:
        """Adjacency of every drawn row of the mechanism's input, after the floor has shrunk it, largest first."""
        sizes = np.array(self.successors, dtype=float)
        moved = np.broadcast_to(np.array(self.h), sizes.shape) if len(self.h) == 1 else np.array(self.h)
        left = np.maximum(0.0, 1.0 - self.floor * sizes) * moved
        left = np.where(left > 1e-15, left, 0.0)[sizes > 1]
        return np.sort(left)[::-1]

    def groups(self, rows: Rows, times: int) -> list[RowGroup]:
        """Return the row releases that are charged."""
        if self.kind != "release":
            return []
        row_h = self.row_h
        if rows != "sequential":
            row_h = row_h[: 1 if rows == "parallel" else int(rows)]
        values, counts = np.unique(row_h[row_h > 0], return_counts=True)
        return [RowGroup(self.k, self.floor, float(h), int(n) * times) for h, n in zip(values, counts, strict=True)]


def make_charge(release: Release | ReleasePlan, h: Any, entries: str | None) -> Charge:
    """Price a release (drawn or planned) under the adjacency `h`: a number, one per row, or an `Adjacency`."""
    if not isinstance(release, (Release, ReleasePlan)):
        raise ValueError(
            f"record takes a Release or a ReleasePlan, got {type(release).__name__}; for a policy computed from the "
            "true matrix call record_deterministic, for one computed from a release record_post_processing."
        )
    plan = release if isinstance(release, ReleasePlan) else ReleasePlan.from_release(release)
    wide = isinstance(h, Adjacency)
    values = np.atleast_1d(np.asarray(h.h if wide else h, dtype=float))
    if values.ndim != 1 or not ((values >= 0) & (values <= 2)).all():
        raise ValueError("h must be a number in [0, 2] or one per row: it is an L1 distance of two rows.")
    count = len(plan.successors)
    if len(values) > 1 and len(values) != count:
        if count % len(values):
            raise ValueError(f"h has {len(values)} values for {count} rows; give one number or one per row.")
        values = np.tile(values, count // len(values))  # a time-dependent matrix: the same states at every time
    chosen = cast(Entries, check_choice(("any" if wide else "two") if entries is None else entries, "entries", ENTRIES))
    h_values, source = tuple(values.tolist()), h.source if wide else "stated"
    return Charge("release", plan.k, plan.floor, plan.successors, plan.seeding, h_values, chosen, source)


def charge_to_line(label: str, charge: Charge, times: int) -> dict[str, Any]:
    """Return the JSON object of one ledger entry."""
    return {"label": label, "times": times, **asdict(charge)}


def charge_from_line(line: dict[str, Any]) -> tuple[str, Charge, int]:
    """Read one ledger entry back, refusing what no ledger wrote."""
    fields = dict(line)
    label, times = str(fields.pop("label")), check_count(fields.pop("times"), "times")
    fields["successors"] = tuple(check_count(size, "successors") for size in fields["successors"])
    fields["h"] = tuple(check_in_range(value, "h", 0, 2) for value in fields["h"])
    charge = Charge(**fields)
    check_choice(charge.kind, "kind", KINDS)
    check_choice(charge.entries, "entries", ENTRIES)
    check_choice(charge.h_source, "h_source", ("stated", "counts", "devices"))
    if charge.kind == "release":
        ReleasePlan(charge.k, charge.floor, charge.successors, charge.seeding)
        if len(charge.h) not in (1, len(charge.successors)):
            raise ValueError(f"h has {len(charge.h)} values for {len(charge.successors)} rows")
    return label, charge, times


def check_rows(rows: Any) -> Rows:
    """Check how rows compose: "sequential", "parallel", or the number of rows that one unit touches."""
    if isinstance(rows, str):
        return check_choice(rows, "rows", ("sequential", "parallel"))
    return check_count(rows, "rows")
