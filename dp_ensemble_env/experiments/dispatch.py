"""A dispatch that could be sent: set-points for every participant, what they should deliver, and what that pays.

Each participant's problem is that of its metered day (`scenarios.metered`). One event price for all of them is given,
or found so that together they shed a target. The set-point of an interval is the expected power of the exactly optimal
policy. The range around it is simulated, each participant by itself. Weather strikes all of them alike, so the range of
the total is wider than that of their sum, by as much as their forecasts have erred together on past days.

With `privacy`, plans are made on releases and reach the participants as tilts of their own behaviour.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.control.policies import as_tilt, solve_standard
from dp_ensemble_env.experiments.trajectories import draw_states
from dp_ensemble_env.privacy.fleet import Fleet
from dp_ensemble_env.privacy.ledger import PrivacyLedger
from dp_ensemble_env.privacy.mechanisms import as_privacy
from dp_ensemble_env.privacy.mechanisms.fleet_sums import FleetMechanism
from dp_ensemble_env.privacy.release import Release
from dp_ensemble_env.privacy.statement import DEFAULT_DELTA
from dp_ensemble_env.programme import ReliefProgramme
from dp_ensemble_env.reporting.score import event_outcome
from dp_ensemble_env.scenarios.metered import MeteredDay, mean_power
from dp_ensemble_env.tools.console import Monitor, Silent

FloatArray = NDArray[np.float64]

#: Share of the simulated days that a range holds.
RANGE = 0.9
#: Multiples of the event's price that the page lets one compare.
MULTIPLES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0)
#: Highest event price that is tried to reach a target, $/kWh.
HIGHEST_PRICE = 50.0
#: So many past days tell how participants stray together.
LEAST_SHARED = 5


@dataclass(frozen=True)
class PlanSettings:
    """What is asked for.

    Attributes
    ----------
    target_kw : float, optional
        Mean power to shed over the event, all participants together; by default the event's incentive is the price.
    privacy : str, optional
        Mechanism whose releases are planned on.
    payback : float
        Assumed share of the energy shed that is drawn again in the two hours after the event.
    programme : ReliefProgramme
    pledge_kw : float, optional
        By default the one of the largest expected revenue.
    draws : int
        Simulated days.
    seed, release_seed : int
    """

    target_kw: float | None = None
    privacy: str | None = None
    payback: float = 0.3
    programme: ReliefProgramme = field(default_factory=ReliefProgramme)
    pledge_kw: float | None = None
    draws: int = 2000
    seed: int = 0
    release_seed: int = 0

    def __post_init__(self) -> None:
        if not 0.0 <= self.payback <= 1.0:
            raise ValueError(f"payback must lie between 0 and 1, got {self.payback:g}; 0.3 is thirty per cent.")
        if self.target_kw is not None and self.target_kw <= 0:
            raise ValueError(f"target must be a positive number of kW, got {self.target_kw:g}.")


@dataclass(frozen=True, eq=False)
class Course:
    """Power over the event and two hours beyond it: of a participant, or of all together; kW.

    Attributes
    ----------
    name : str
    times : ndarray of datetime64 of shape (K,)
        Ends of the intervals.
    in_event : ndarray of bool
    setpoint, low, high, uncontrolled : ndarray of shape (K,)
        Expected power under the plan, its range, and expected power without it.
    baseline : ndarray or None
        Customer baseline; NaN after the event.
    drawn_kwh : ndarray of shape (draws,)
        Energy in the event of each simulated day.
    discomfort : float
        Dollars that the participants bear.
    payback : float
    """

    name: str
    times: NDArray[np.datetime64]
    in_event: NDArray[np.bool_]
    setpoint: FloatArray
    low: FloatArray
    high: FloatArray
    uncontrolled: FloatArray
    baseline: FloatArray | None
    drawn_kwh: FloatArray
    discomfort: float
    payback: float

    @property
    def step_hours(self) -> float:
        """Length of an interval."""
        return float((self.times[1] - self.times[0]) / np.timedelta64(3600, "s"))

    @property
    def hours(self) -> float:
        """Length of the event."""
        return float(self.in_event.sum() * self.step_hours)

    def energy(self, kw: FloatArray) -> float:
        """Return the energy of a course of power in the event, kWh."""
        return float(kw[self.in_event].sum() * self.step_hours)

    @property
    def shed_kwh(self) -> float:
        """Energy below the uncontrolled load in the event."""
        return self.energy(self.uncontrolled - self.setpoint)

    @property
    def after(self) -> NDArray[np.bool_]:
        """Which intervals follow the event."""
        return np.asarray(self.times > self.times[self.in_event][-1])

    @property
    def rebound_kwh(self) -> float:
        """Energy above the uncontrolled load in the two hours after the event."""
        return float((self.setpoint - self.uncontrolled)[self.after].sum() * self.step_hours)

    @property
    def delivered_kw(self) -> FloatArray | None:
        """Mean power below the customer baseline on each simulated day; None without a baseline."""
        return None if self.baseline is None else (self.energy(self.baseline) - self.drawn_kwh) / self.hours


@dataclass(frozen=True, eq=False)
class PriceLevel:
    """What another event price would bring: set-points of all together (K,), kW, and dollars of discomfort."""

    price: float
    setpoint: FloatArray
    discomfort: float


@dataclass(frozen=True, eq=False)
class Plan:
    """A dispatch.

    Attributes
    ----------
    participants : tuple of Course
    total : Course
    price : float
        Event price that every participant sees, $/kWh on top of the tariff.
    energy_price : ndarray of shape (K,)
        The tariff.
    pledge_kw : float
    programme : ReliefProgramme
    revealed : tuple of str
    notes : dict of tuples of str
    levels : tuple of PriceLevel
        The plan at other event prices, from nothing upwards.
    """

    participants: tuple[Course, ...]
    total: Course
    price: float
    energy_price: FloatArray
    pledge_kw: float
    programme: ReliefProgramme
    revealed: tuple[str, ...]
    notes: dict[str, tuple[str, ...]]
    levels: tuple[PriceLevel, ...] = ()

    @property
    def money(self) -> dict[str, float]:
        """Expected dollars: what the programme pays in a month with this event, and the bill."""
        total = self.total
        shed = (total.uncontrolled - total.setpoint) * total.step_hours * self.energy_price
        found = {
            "energy_bill_saved": float(shed[~total.after].sum()),
            "rebound_cost": float(-shed[total.after].sum()),
            "discomfort": total.discomfort,
        }
        delivered = total.delivered_kw
        if delivered is not None:
            factor = self.programme.performance_factor(delivered, self.pledge_kw)
            paid = self.programme.payment(delivered, self.pledge_kw, total.hours)
            found |= {
                "performance_factor": float(factor.mean()),
                "reservation_payment": float(self.programme.reservation * self.pledge_kw * factor.mean()),
                "energy_payment": float(self.programme.energy * np.maximum(delivered, 0.0).mean() * total.hours),
                "payment": float(paid.mean()),
                "payment_low": float(np.quantile(paid, (1 - RANGE) / 2)),
                "payment_high": float(np.quantile(paid, (1 + RANGE) / 2)),
            }
        return found


def make_plan(
    days: dict[str, MeteredDay], settings: PlanSettings | None = None, monitor: Monitor | None = None
) -> Plan:
    """Plan one event for all participants.

    Parameters
    ----------
    days : dict of MeteredDay
        By participant; all with the same event.
    settings : PlanSettings, optional
    monitor : Monitor, optional
    """
    settings, monitor = settings or PlanSettings(), monitor or Silent()
    first = next(iter(days.values()))
    kernels, revealed = _kernels(days, settings)
    if settings.target_kw is None:
        price = float(first.event.incentive)
    else:
        monitor.stage("finding the price")
        price = _price_for(days, kernels, settings.target_kw)
    rngs = np.random.default_rng(settings.seed).spawn(len(days))
    monitor.stage("simulating", len(days))
    courses = []
    for (name, day), rng in zip(days.items(), rngs, strict=True):
        courses.append(_course(name, day, _policy(day, kernels.get(name), price), settings, rng))
        monitor.advance(len(courses))
    total = _total(courses, together(days), settings)
    delivered = total.delivered_kw
    pledge = settings.pledge_kw
    if pledge is None:
        pledge = 0.0 if delivered is None else settings.programme.best_pledge(delivered)
    tariff = first.event.tariff.at(total.times - (total.times[1] - total.times[0]))
    notes = {name: day.notes for name, day in days.items()}
    monitor.stage("other prices", len(MULTIPLES))
    levels = []
    for multiple in MULTIPLES:
        levels.append(_level(days, kernels, multiple * price, settings.payback))
        monitor.advance(len(levels))
    terms = price, tariff, pledge, settings.programme, revealed, notes
    return Plan(tuple(courses), total, *terms, tuple(levels))


# ------------------------------------------------------------------ policies
def _policy(day: MeteredDay, kernel: FloatArray | None, price: float) -> FloatArray:
    """Return the policy under an event price: the exact optimum, or the plan on a release as a tilt."""
    model = day.priced(price)
    if kernel is None:
        return solve_standard(model).policy
    return as_tilt(solve_standard(model.with_default(kernel)), model)


def _price_for(days: dict[str, MeteredDay], kernels: dict[str, FloatArray], target_kw: float) -> float:
    """Return the least event price at which the participants shed the target together."""

    def shed(price: float) -> float:
        found = 0.0
        for name, day in days.items():
            held = mean_power(day.model, _policy(day, kernels.get(name), price))
            idle = mean_power(day.model, day.model.default_policy)
            found += float((idle - held)[day.in_event].mean()) * day.model.buildings
        return found

    most = shed(HIGHEST_PRICE)
    if most < target_kw:
        raise ValueError(
            f"target={target_kw:g} kW is more than the participants can spare: {most:,.0f} kW at ${HIGHEST_PRICE:g} "
            "per kWh; ask for less, or for more participants."
        )
    low, high = 0.0, 1.0
    while shed(high) < target_kw:
        low, high = high, 2.0 * high
    for _ in range(30):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if shed(middle) < target_kw else (low, middle)
    return high


def _kernels(days: dict[str, MeteredDay], settings: PlanSettings) -> tuple[dict[str, FloatArray], tuple[str, ...]]:
    """Draw what is planned on, and say what it revealed."""
    exact = "Forecasts, floors and set-points are computed from the readings without noise: they go to whoever may see"
    exact += " the participant's meter, and to nobody else."
    if settings.privacy is None:
        return {}, (exact, "The plan uses the true behaviour of every participant. Nothing about it is private.")
    privacy = as_privacy(settings.privacy)
    if isinstance(privacy, Release):
        raise ValueError("a dispatch draws its own releases; give privacy=... a mechanism such as gaussian:epsilon=4.")
    ledger = PrivacyLedger()
    seed = settings.release_seed
    if isinstance(privacy, FleetMechanism):
        fleet, levels = _fleet(days)
        model = next(iter(days.values())).model
        release = ledger.release(privacy, fleet, seed, **privacy.terms_of(model))
        return dict.fromkeys(days, release.matrix), (
            f"The behaviour behind the prices is one release for all participants, of {levels} levels between each "
            f"one's own extremes. {ledger.statement()}",
            exact,
        )
    found: dict[str, FloatArray] = {}
    ledgers: dict[tuple[int, ...], PrivacyLedger] = {}  # alike for all: what a draw costs depends on its shape alone
    for number, (name, day) in enumerate(days.items()):
        own = PrivacyLedger()
        found[name] = own.release(privacy, day.model.default, seed + number, **privacy.terms_of(day.model)).matrix
        ledgers[day.model.default.shape] = own
    worst = max(own.spent(DEFAULT_DELTA) for own in ledgers.values())
    price = f"ε = {worst:.3g} at δ = {DEFAULT_DELTA:g}" if np.isfinite(worst) else "no guarantee (there is no floor)"
    return found, (f"The behaviour behind the plan is a release of each participant's own: {price} at most.", exact)


def _fleet(days: dict[str, MeteredDay]) -> tuple[Fleet, int]:
    """Return the participants' moves between levels, each between its own extremes."""
    counts = {day.model.n_states for day in days.values()}
    n = counts.pop()
    states = []
    for day in days.values():
        power = day.model.power_kw
        place = np.rint((day.kw - power[0]) / (power[-1] - power[0]) * (n - 1))
        before = day.stamps < day.model.times[0]
        gap = np.isnan(place) | ~before
        states.append(np.where(gap, -1, np.clip(np.where(gap, 0, place), 0, n - 1)).astype(int))
    return Fleet.from_states(states, n_states=n), n


# ------------------------------------------------------------------ what will happen
def _level(days: dict[str, MeteredDay], kernels: dict[str, FloatArray], price: float, payback: float) -> PriceLevel:
    """Return what an event price brings, without simulating days."""
    discomfort, setpoints = 0.0, []
    for name, day in days.items():
        model, policy = day.model, _policy(day, kernels.get(name), price)
        rest = day.path.behaviour(model.power_kw)[model.horizon :]
        held, idle = (mean_power(model, np.concatenate([p, rest])) for p in (policy, model.default_policy))
        in_event = np.append(day.in_event, np.zeros(len(rest), dtype=bool))
        after = day.path.times > day.path.times[in_event][-1]
        owed = payback * (idle - held)[in_event].sum() / max(after.sum(), 1)
        setpoints.append(model.buildings * (held + np.where(after, owed, 0.0)))
        discomfort += model.buildings * event_outcome(model, policy).discomfort
    return PriceLevel(price, np.sum(setpoints, axis=0), discomfort)


def _course(name: str, day: MeteredDay, policy: FloatArray, settings: PlanSettings, rng: np.random.Generator) -> Course:
    model, loads = day.model, day.model.buildings
    rest = day.path.behaviour(model.power_kw)[model.horizon :]
    whole = np.concatenate([policy, rest])
    idle = np.concatenate([model.default_policy, rest])
    expected, uncontrolled = (mean_power(model, kernel) for kernel in (whole, idle))
    times = day.path.times
    in_event = np.append(day.in_event, np.zeros(len(rest), dtype=bool))
    drawn = model.power_kw[draw_states(whole, model.initial, settings.draws, rng)]
    hours = model.step_hours
    after = times > times[in_event][-1]
    if after.any():
        owed = settings.payback * (uncontrolled - expected)[in_event].sum()
        expected, drawn = expected.copy(), drawn.copy()
        expected[after] += owed / after.sum()
        shed = uncontrolled[in_event].sum() - drawn[:, in_event].sum(axis=1)
        drawn[:, after] += settings.payback * shed[:, None] / after.sum()
    low, high = np.quantile(drawn, [(1 - RANGE) / 2, (1 + RANGE) / 2], axis=0)
    assert model.event is not None
    baseline = model.event.baseline_kw
    return Course(
        name,
        times,
        in_event,
        loads * expected,
        loads * low,
        loads * high,
        loads * uncontrolled,
        None if baseline is None else np.append(baseline, np.full(len(rest), np.nan)),
        loads * drawn[:, in_event].sum(axis=1) * hours,
        loads * event_outcome(model, policy).discomfort,
        settings.payback,
    )


def together(days: dict[str, MeteredDay]) -> float:
    """Return how much wider the total strays than the sum of participants that stray independently; at least 1.

    Taken from the errors that the forecasts made of the event's energy on past days which all participants share.
    """
    shared: list[np.datetime64] = sorted(set.intersection(*(set(day.path.dates.tolist()) for day in days.values())))
    if len(days) == 1 or len(shared) < LEAST_SHARED:
        return 1.0
    errors = np.empty((len(days), len(shared)))  # kWh up to a factor, by participant and day
    for row, day in zip(errors, days.values(), strict=True):
        path, steps = day.path, len(day.in_event)
        row[:] = day.model.buildings * path.errors[np.isin(path.dates, shared), :steps][:, day.in_event].sum(axis=1)
    apart = np.sum(errors**2)
    return max(1.0, float(np.sqrt(np.sum(errors.sum(axis=0) ** 2) / apart))) if apart > 0 else 1.0


def _total(courses: list[Course], wider: float, settings: PlanSettings) -> Course:
    """Add the participants up, with ranges `wider` than if they strayed independently."""
    first = courses[0]
    setpoint = np.sum([course.setpoint for course in courses], axis=0)
    below = np.sqrt(np.sum([(course.setpoint - course.low) ** 2 for course in courses], axis=0))
    above = np.sqrt(np.sum([(course.high - course.setpoint) ** 2 for course in courses], axis=0))
    baselines = [course.baseline for course in courses if course.baseline is not None]
    drawn = np.sum([course.drawn_kwh for course in courses], axis=0)
    return Course(
        "total",
        first.times,
        first.in_event,
        setpoint,
        np.maximum(setpoint - wider * below, 0.0),
        setpoint + wider * above,
        np.sum([course.uncontrolled for course in courses], axis=0),
        np.sum(baselines, axis=0) if len(baselines) == len(courses) else None,
        drawn.mean() + wider * (drawn - drawn.mean()),
        float(sum(course.discomfort for course in courses)),
        settings.payback,
    )
