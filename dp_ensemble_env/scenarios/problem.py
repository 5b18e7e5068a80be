"""A control problem by its settings: a scenario, or an event on a meter of one's own.

`ProblemSettings` is frozen and JSON-able, so that a run folder or a sweep can remember which problem it was about and
build it again.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from dp_ensemble_env import scenarios
from dp_ensemble_env.chain.calendar import named_holidays
from dp_ensemble_env.chain.day import TooFewSimilarDays
from dp_ensemble_env.chain.event import DemandResponseEvent, Tariff, check_event_day, event_day, event_for
from dp_ensemble_env.meter import PowerSeries, ReadSettings, read_meter
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy.fleet import Fleet
from dp_ensemble_env.privacy.ledger import PrivacyLedger
from dp_ensemble_env.privacy.mechanisms import Mechanism, as_privacy
from dp_ensemble_env.privacy.mechanisms.fleet_sums import FleetMechanism
from dp_ensemble_env.privacy.participants import SimulatedFleet
from dp_ensemble_env.privacy.release import Release
from dp_ensemble_env.scenarios import metered
from dp_ensemble_env.scenarios.campus import HOLIDAYS
from dp_ensemble_env.tools.files import resolved
from dp_ensemble_env.tools.validation import option


@dataclass(frozen=True, eq=False)
class Problem:
    """A model, how it came about, and what there is to say about it."""

    model: EnsembleModel
    settings: ProblemSettings
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModelSettings:
    """Which problem: a scenario, or your own meter."""

    scenario: str = "call"
    """Built-in problem; dp-ensemble scenarios lists them."""
    instance: int = 0
    """Number of the scenario's training instance."""
    levels: int | None = None
    """Number of power levels (default: 20 for campus-event, 40 for a metered day)."""
    loads: int | None = None
    """Number of loads, or copies of a metered building (default: the scenario's, or 1)."""
    penalty: float | None = None
    """Discomfort in dollars per load and nat (default: the scenario's); for a metered day see --response."""


@dataclass(frozen=True)
class EventSettings:
    """The event of campus-event or of your meter. Options left out follow the scenario."""

    date: str | None = None
    """Day of the event (default for a meter: the first working day from 2 July in its last summer)."""
    window: str | None = None
    """Its hours, such as 11:00-15:00."""
    incentive: float | None = None
    """Dollars per kWh during the event."""
    tariff: float | str | None = None
    """Energy price in dollars per kWh, or a CSV file of prices."""


#: Scenarios whose event and levels can be changed.
WITH_EVENT = ("campus-event",)
#: Settings that say how a meter file is read.
READING = tuple(f.name for f in fields(ReadSettings))


@dataclass(frozen=True)
class MeterSettings(ReadSettings):
    """Your own meter instead of a scenario, and how its file is read."""

    meter: str | None = None
    """Your own meter file, instead of a scenario; plan, settle and backtest take several meters, or a folder."""
    season: tuple[str, str] | None = None
    """Use only readings between two days of the year, such as 06-15 09-25."""
    exclude: tuple[str, ...] = ()
    """Days to leave out, such as 2018-07-05."""
    holidays: tuple[str, ...] = ("us",)
    """Holidays, which forecast and customer baseline skip: days, or a country such as us or gb-eng."""


@dataclass(frozen=True)
class ForecastSettings:
    """How the readings of a meter become the problem of one day."""

    profile: Literal["building", "aggregate"] = "building"
    """Whether the file is one building, or already the sum of all loads."""
    dynamics: Literal["day", "pooled"] = "day"
    """Let behaviour follow the day of the event, or use one chain for all times."""
    temperature: str | None = None
    """CSV file of stamps and outdoor temperatures, with a forecast for the event's day."""
    shed_floor: float = metered.SHED_FLOOR
    """Never push a load below this percentile of its occupied hours."""
    response: float = metered.RESPONSE
    """Calibrate the penalty: share of the energy that an event of $1 per kWh sheds."""
    penalty_per_kw: float | None = None
    """State the penalty in dollars per nat and kW of usual load instead."""


@dataclass(frozen=True)
class ProblemSettings(ForecastSettings, MeterSettings, EventSettings, ModelSettings):
    """Which problem, and how it is made. None leaves a setting to the scenario.

    The fields are those of `ModelSettings`, `EventSettings`, `MeterSettings` and `ForecastSettings`, which the command
    line shows as its options. A meter stands for itself unless copies of it are asked for.
    """

    @classmethod
    def of(cls, *parts: Any, usual: str | None = None, **more: Any) -> ProblemSettings:
        """Put parts together; they must fit each other. A meter takes the place of the `usual` scenario."""
        values = {f.name: getattr(part, f.name) for part in parts for f in fields(part)} | more
        settings, plain = cls(**values), cls()
        if settings.meter is not None:
            if settings.scenario != (usual or plain.scenario):
                raise ValueError("scenario and meter exclude each other: a problem is built in or made from your file.")
            return replace(settings, scenario=plain.scenario)
        for part in (MeterSettings, ForecastSettings):
            for f in fields(part):
                if f.name not in (*more, "dynamics") and getattr(settings, f.name) != getattr(plain, f.name):
                    remedy = f"give one with {option('meter')}, or leave it out"
                    raise ValueError(f"{option(f.name)} says how a meter file is read; {remedy}.")
        return settings

    @property
    def title(self) -> str:
        """Name in tables and folders."""
        if self.meter is not None:
            return Path(self.meter).stem
        return f"{self.scenario}:{self.instance}" if self.instance else self.scenario

    def build(self) -> Problem:
        """Read the data and make the model."""
        return self._from_scenario() if self.meter is None else self._from_meter(str(self.meter))

    def identity(self) -> dict[str, Any]:
        """Return what decides the model: what was set, and the content of the file instead of where it lies."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        content = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
        if self.meter is not None:
            content.pop("meter")
            content["sha256"] = file_digest(self.meter)
        else:
            content["scenario"] = self.scenario
        return content

    def to_dict(self) -> dict[str, Any]:
        """Return the settings for JSON, with the digest of the meter file."""
        settings = {"sha256": None if self.meter is None else file_digest(self.meter), **asdict(self)}
        if self.meter is not None:
            settings["meter"] = str(resolved(self.meter))
        return settings

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> ProblemSettings:
        """Read what `to_dict` wrote; a meter file that has gone or changed is refused."""
        known = {f.name for f in fields(cls)}
        values: dict[str, Any] = {name: content[name] for name in content if name in known}
        values |= {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
        settings = cls(**values)
        if settings.meter is not None:
            if not Path(settings.meter).is_file():
                remedy = f"pass {option('meter')} to say where it is"
                raise ValueError(f"the meter file {settings.meter} has gone; {remedy}.")
            if content.get("sha256") not in (None, file_digest(settings.meter)):
                raise ValueError(f"the meter file {settings.meter} has changed since; restore it, or train again.")
        return settings

    # ------------------------------------------------------------ building
    def _event_fields(self) -> dict[str, Any]:
        values: dict[str, Any] = _given(date=self.date, incentive=self.incentive)
        if self.window is not None:
            values["start"], _, values["end"] = self.window.partition("-")
        if self.tariff is not None:
            values["tariff"] = Tariff.from_csv(self.tariff) if isinstance(self.tariff, str) else self.tariff
        return values

    def _model_fields(self) -> dict[str, Any]:
        return _given(n_states=self.levels, loads=self.loads, discomfort_penalty=self.penalty)

    def _from_scenario(self) -> Problem:
        if self.scenario in scenarios.BUILT_IN and self.scenario not in WITH_EVENT:
            for name in (*(f.name for f in fields(EventSettings)), "levels"):
                if getattr(self, name) is not None:
                    remedy = f"leave it out, or use {option('scenario', WITH_EVENT[0])} or {option('meter')}"
                    raise ValueError(f"scenario {self.scenario!r} does not support {option(name)}; {remedy}.")
        overrides = {**self._model_fields(), **self._event_fields()}
        model = scenarios.make(self.scenario, instance=self.instance, **overrides)
        return Problem(model, self, model.notes)

    def read(self) -> PowerSeries:
        """Read the meter file."""
        return read_meter(str(self.meter), self)

    def event(self, series: PowerSeries) -> DemandResponseEvent:
        """Return the event that the settings describe, on a meter."""
        return event_for(series, **{"date": self.date or event_day(series, HOLIDAYS), **self._event_fields()})

    def day_settings(self, **changes: Any) -> metered.DaySettings:
        """Return how readings become the problem of one day."""
        names = ("profile", "penalty", "penalty_per_kw", "response", "shed_floor", "season", "exclude", "holidays")
        values = {name: getattr(self, name) for name in names}
        values |= {"levels": self.levels or metered.LEVELS, "loads": self.loads or 1, **changes}
        return metered.DaySettings(**values)

    def temperatures(self) -> tuple[Any, Any] | None:
        """Read the temperatures, if there are any."""
        return None if self.temperature is None else metered.read_temperature(self.temperature)

    def _from_meter(self, file: str) -> Problem:
        series = self.read()
        event = self.event(series)
        check_event_day(event, series.times, series.source)
        when = f"The event is on {event.date}" + ("." if self.date else "; no date was given.")
        public = "The power levels come from the meter and count as public where a release is drawn"
        notes: tuple[str, ...] = ()
        if self.dynamics == "pooled":
            model = self._pooled(series, event)
        else:
            try:
                model = metered.metered_day(series, event, self.day_settings(), temperature=self.temperatures()).model
            except TooFewSimilarDays as error:
                model = self._pooled(series, event)
                notes = (f"One chain for all times is used: {error}",)
        return Problem(model, self, tuple(dict.fromkeys((*series.notes, *notes, *model.notes, when, f"{public}."))))

    def _pooled(self, series: PowerSeries, event: DemandResponseEvent) -> EnsembleModel:
        loads = self.loads or 1
        return EnsembleModel.from_series(
            series,
            event,
            # One load is the building itself, not a noisy copy of it.
            profile="aggregate" if loads == 1 else self.profile,
            season=self.season,
            exclude=self.exclude,
            holidays=named_holidays(self.holidays, series.times),
            public=["levels"],  # declared by whoever runs a command on a meter; start states and baseline are not
            **{"loads": 1, **self._model_fields()},
        )


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def file_digest(path: str | Path) -> str:
    """Return the SHA-256 of a file."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}; check the name of the meter file.") from error


# ------------------------------------------------------------------ releases
def draw_release(spec: str, model: EnsembleModel, seed: int | None, fleet: Fleet | None = None) -> Release:
    """Draw a release of a model's behaviour with the mechanism that a spec names, or load a saved one.

    A mechanism that protects participants draws from the fleet, or from those that its spec asks to simulate, who are
    the same for every seed: ``"adaptive:epsilon=1,participants=1000"``.
    """
    privacy = as_privacy(spec)
    if isinstance(privacy, Release):
        return privacy
    assert isinstance(privacy, Mechanism)
    data: Any = model.default
    if isinstance(privacy, FleetMechanism) and fleet is not None:
        data = fleet
    elif isinstance(privacy, SimulatedFleet):
        data = privacy.data_of(model)
    return PrivacyLedger().release(privacy, data, seed, **privacy.terms_of(model))
