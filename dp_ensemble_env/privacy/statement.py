"""The privacy card: the releases, the unit of protection, the privacy spent, and the assumptions.

A `PrivacyCard` states, for all entries of a ledger, the definition of privacy, the neighbouring relation, the unit of
protection, and the assumptions. It prints as one line; `PrivacyCard.save` writes it
as Markdown and JSON. Its fields are those of the Differential Privacy Deployments Registry (arXiv:2509.13509) and of
NIST SP 800-226.

>>> print(release_guarantee(k=50, h=0.03, omega=0.1, delta=1e-6, rows=20))  # doctest: +NORMALIZE_WHITESPACE
(12.16, 1e-06)-approximate differential privacy for one release of 20 rows at k=50: rows are adjacent when two of
their entries differ by at most h/2=0.015 each. It protects a change of that size in each of 20 rows. It assumes a
public support with no entry below 0.1 before the draw. Method: exact dominating pair, composed over rows.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dp_ensemble_env.privacy.accounting.compose import RowGroup, can_convolve, composed_epsilon
from dp_ensemble_env.privacy.accounting.divergence import ENTRIES, Entries, check_delta, check_row_settings
from dp_ensemble_env.privacy.adjacency import NeighboringRelation
from dp_ensemble_env.privacy.mechanisms.base import SEEDED, Disclosure, Event
from dp_ensemble_env.privacy.mechanisms.dirichlet import DirichletEvent
from dp_ensemble_env.privacy.mechanisms.fleet_sums import FleetEvent
from dp_ensemble_env.tools.files import atomic_write
from dp_ensemble_env.tools.validation import check_choice, check_count

if TYPE_CHECKING:
    from dp_ensemble_env.privacy.ledger import PrivacyLedger

DEFINITION = "approximate differential privacy"
NO_FLOOR = (
    "without a floor no guarantee holds for all inputs: the smallest entry decides, and an entry below h/2 has no "
    "adjacent row at all"
)
DETERMINISTIC = "a deterministic function of the true matrix was disclosed (noise-aware, not private)"
ONLY_TRUTH = "Privacy: no guarantee (ε = ∞): computed from the true matrix."
TWO_UNITS = "the total protects a participant only if its data move no row of the Dirichlet draws by more than h"
BEFOREHAND = "the draws' settings were fixed beforehand, not chosen from earlier releases"
DEFAULT_DELTA = 1e-6  #: Of a printed line, unless asked for: well below one over any number of participants here.
CURVE = (1e-3, 1e-5, 1e-6, 1e-9)  #: Where the card tabulates ε.
MODEL = "central: a trusted curator reads the data and draws the release"
NOT_COVERED = (
    "the curator and everyone who may read its files (no local privacy)",
    "observations by participants of their own prices and devices (no joint privacy)",
    "fields that are declared public: they are believed, not checked (honest-but-curious)",
    "scores computed on the true behaviour: they are not private, so do not publish them",
    "several ledgers over the same participants: their totals add up",
    "timing, memory and other side channels",
)
#: What bounds the influence of the unit of protection.
BOUNDS = {
    NeighboringRelation.ADD_OR_REMOVE_ONE: "one participant's rows have a bounded norm, or are clipped one by one",
    NeighboringRelation.REPLACE_ONE: "as for adding and removing one participant, twice",
    NeighboringRelation.CHANGE_ROWS: "a row moves by at most h in L1 distance",
}
UNITS = {
    NeighboringRelation.ADD_OR_REMOVE_ONE: "everything that one participant ever contributed",
    NeighboringRelation.REPLACE_ONE: "everything that one participant ever contributed",
    NeighboringRelation.CHANGE_ROWS: "a change of h in rows of the behaviour, not a participant",
}
NOISE = {
    "os-entropy": "discrete, exact, from a cryptographic source (OpenDP, Pólya's urn)",
    "seed": f"NumPy, {SEEDED}",
    "generator": f"NumPy, {SEEDED}",
}


@dataclass(frozen=True)
class PrivacyCard:
    """The entries of a ledger, in the fields that privacy engineers ask for."""

    line: str  #: One line to print beside results.
    flavour: str  #: The definition of privacy.
    unit: tuple[str, ...]  #: Units of protection.
    relation: tuple[str, ...]  #: Neighbouring relations on files.
    contribution: tuple[str, ...]  #: Bounds on contributions.
    epsilon: float  #: Infinite where no guarantee holds for all inputs.
    delta: float
    curve: tuple[tuple[float, float], ...]  #: Pairs of δ and ε.
    model: str  #: Who is trusted.
    accounting: str  #: How draws are composed.
    implementation: str  #: By which versions.
    noise: tuple[str, ...]  #: Sources of the noise.
    releases: str  #: The draws and their settings.
    declared: tuple[str, ...]  #: What was declared to be public.
    assumptions: tuple[str, ...]
    not_covered: tuple[str, ...] = NOT_COVERED

    @classmethod
    def of(cls, ledger: PrivacyLedger, delta: float | None, rows: str | int) -> PrivacyCard:
        """Make the card of a ledger, by default at the δ of its budget, or at 1e-6."""
        delta = check_delta((ledger.budget[1] if ledger.budget else DEFAULT_DELTA) if delta is None else delta)
        charges = ledger.charges
        draws = [charge for charge in charges if charge.draws]
        epsilon = ledger.get_epsilon(delta, rows)
        settings, terms = _claims(draws, charges, rows)
        relations = list(dict.fromkeys(charge.relation for charge in draws if charge.relation is not None))
        return cls(
            line=_line(ledger, epsilon, delta, settings, terms),
            flavour=DEFINITION,
            unit=tuple(dict.fromkeys(UNITS[one] for one in relations)),
            relation=tuple(one.name for one in relations),
            contribution=tuple(BOUNDS[one] for one in relations),
            epsilon=epsilon,
            delta=delta,
            curve=tuple((at, ledger.get_epsilon(at, rows)) for at in sorted({*CURVE, delta}, reverse=True)),
            model=MODEL,
            accounting=_accounting(rows),
            implementation=_versions("dp-ensemble-env", "opendp"),
            noise=tuple(dict.fromkeys(NOISE[one.seeding] for one in draws if one.random)),
            releases=settings,
            declared=ledger.declared,
            assumptions=tuple(terms),
        )

    def __str__(self) -> str:
        return self.line

    def to_json(self) -> dict[str, Any]:
        """Return the card as plain values; an infinite ε is the text ``"infinity"``, as JSON has no infinity."""
        curve = [(delta, _plain(epsilon)) for delta, epsilon in self.curve]
        return {**asdict(self), "epsilon": _plain(self.epsilon), "curve": curve}

    def entries(self) -> list[tuple[str, str]]:
        """Return the fields by their names, each as one text."""
        return [(name, "; ".join(value)) for name, value in self._fields()]

    def _fields(self) -> list[tuple[str, tuple[str, ...]]]:
        fields: list[tuple[str, tuple[str, ...]]] = [
            ("Flavour", (self.flavour,)),
            ("Unit of protection", self.unit),
            ("Neighbouring relation", self.relation),
            ("Bound on contributions", self.contribution),
            ("ε, δ", (f"{_number(self.epsilon)}, {self.delta:g}",)),
            ("Model", (self.model,)),
            ("Releases", (self.releases,)),
            ("Source of noise", self.noise),
            ("Accounting", (self.accounting,)),
            ("Implementation", (self.implementation,)),
            ("Declared public (believed, not checked)", self.declared),
            ("Assumptions", self.assumptions),
            ("Not covered", self.not_covered),
        ]
        return [(name, values or ("none",)) for name, values in fields]

    def markdown(self) -> str:
        """Return the card as one page."""
        curve = "".join(f"\n| {delta:g} | {_number(epsilon)} |" for delta, epsilon in self.curve)
        body = "\n".join(
            f"- **{name}**:" + ("".join(f"\n  - {one}" for one in values) if values[1:] else f" {values[0]}")
            for name, values in self._fields()
        )
        return f"# Privacy card\n\n{self.line}\n\n{body}\n\n| δ | ε |\n|---|---|{curve}\n"

    def save(self, path: str | os.PathLike[str]) -> tuple[Path, Path]:
        """Write ``<name>.card.md`` and ``<name>.card.json`` beside the file `path`; return both paths."""
        beside = Path(path)
        page, data = (beside.with_name(f"{beside.stem}.card{ending}") for ending in (".md", ".json"))
        with atomic_write(page) as stream:
            stream.write(self.markdown())
        with atomic_write(data) as stream:
            stream.write(json.dumps(self.to_json(), indent=1, ensure_ascii=False) + "\n")
        return page, data


# ------------------------------------------------------------------ words
def _plain(epsilon: float) -> float | str:
    return epsilon if math.isfinite(epsilon) else "infinity"


def _number(epsilon: float) -> str:
    return f"{epsilon:.4g}" if math.isfinite(epsilon) else "infinity (no guarantee)"


def _versions(*packages: str) -> str:
    known = []
    for name in packages:
        try:
            known.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join(known)


def _accounting(rows: str | int) -> str:
    how = f"privacy-loss distributions ({_versions('dp-accounting')})" if can_convolve() else "Rényi divergences alone"
    touched = {"sequential": "all rows compose", "parallel": "a unit touches one row of each matrix"}
    each = touched.get(str(rows), f"a unit touches {rows} rows of each matrix")
    return f"{how} and Rényi bounds, exact where a closed form is known; {each}"


def _line(ledger: PrivacyLedger, epsilon: float, delta: float, settings: str, terms: list[str]) -> str:
    charges = ledger.charges
    draws = [charge for charge in charges if charge.draws]
    disclosed = any(isinstance(charge, Disclosure) for charge in charges)
    if not draws:
        return ONLY_TRUTH if disclosed else "Privacy: nothing was released, nothing is spent."
    if math.isfinite(epsilon):
        parts = [f"Privacy: ({epsilon:.4g}, {delta:g})-{DEFINITION} for {settings}"]
    else:
        parts = [f"Privacy: no guarantee (epsilon = infinity at delta={delta:g}) for {settings}"]
    parts += [DETERMINISTIC] if disclosed else []
    parts += [NO_FLOOR] if any(isinstance(charge, DirichletEvent) and charge.bare for charge in draws) else []
    parts += terms
    parts += [f"declared public (believed, not checked): {', '.join(ledger.declared)}"] if ledger.declared else []
    if ledger.budget is not None:
        parts.append(f"budget ({ledger.budget[0]:g}, {ledger.budget[1]:g}), {ledger.remaining():.4g} left")
    return ". ".join(part[0].upper() + part[1:] for part in parts) + "."


def _claims(draws: list[Event], charges: dict[Event, int], rows: str | int) -> tuple[str, list[str]]:
    """Put the draws of a ledger into words: how many with which settings, and the terms of the claim."""
    settings, terms = [], []
    for kind in dict.fromkeys(event.type for event in draws):
        mine = [event for event in draws if event.type == kind]
        number = sum(charges[event] for event in mine)
        said, more = mine[0].claims(mine, rows)
        settings.append(f"{number} release{'s' * (number != 1)}{said}")
        terms += more
    if not draws:
        return "0 releases", []
    if not can_convolve():
        terms.append("composed with the Rényi bound, as dp-accounting is not installed")
    rows_alone = any(isinstance(event, DirichletEvent) and event.h_source == "stated" for event in draws)
    if rows_alone and any(isinstance(event, FleetEvent) for event in draws):
        terms.append(TWO_UNITS)
    if len({event.drawn for event in draws if event.random}) > 1:
        terms.append(BEFOREHAND)
    if any(event.seeding != "os-entropy" for event in draws):
        terms.append(SEEDED)
    return " and ".join(settings), list(dict.fromkeys(terms))


# ------------------------------------------------------------------ the guarantee of one release
def release_guarantee(
    k: float, h: float, omega: float, delta: float, rows: int = 1, *, entries: Entries = "two"
) -> str:
    """State the guarantee of one Dirichlet release of `rows` rows, which compose, with entries of `omega` or more."""
    check_row_settings(k, h, omega)
    rows = check_count(rows, "rows")
    check_choice(entries, "entries", ENTRIES)
    epsilon = composed_epsilon(check_delta(delta), [RowGroup(k, omega, h, rows)], entries)
    release = f"one release of {rows} row{'s' * (rows != 1)} at k={k:.6g}"
    if not math.isfinite(epsilon):
        why = f"omega={omega:g} is too small for h={h:g} by this bound; raise the floor or shrink h"
        why = why if omega else f"{NO_FLOOR}; set a floor"
        return f"No guarantee (epsilon = infinity at delta={delta:g}) for {release}: {why}."
    adjacent = f"two of their entries differ by at most h/2={h / 2:.4g} each"
    if entries == "any":
        adjacent = f"their entries differ by at most h={h:.4g} in total (L1 distance)"
    each = "one row" if rows == 1 else f"each of {rows} rows"
    method = ("exact dominating pair" if entries == "two" else "Rényi bound") + ", composed over rows" * (rows > 1)
    return (
        f"({epsilon:.4g}, {delta:g})-{DEFINITION} for {release}: rows are adjacent when {adjacent}. It protects a "
        f"change of that size in {each}. It assumes a public support with no entry below {omega:.4g} before the draw. "
        f"Method: {method}."
    )
