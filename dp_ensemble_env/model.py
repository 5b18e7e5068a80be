"""The description of one control problem, checked once and then frozen."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_ensemble_env.chain.estimate import series_fields
from dp_ensemble_env.chain.event import DemandResponseEvent, EventTimeline
from dp_ensemble_env.context import Context
from dp_ensemble_env.coupling import Coupling
from dp_ensemble_env.shapes import (
    Axis,
    Tables,
    check_axes,
    check_counts,
    check_guess,
    check_leading,
    check_nature,
    check_scale,
    check_support,
    check_ties,
    check_times,
    check_utility,
    fill,
    freeze,
)
from dp_ensemble_env.tools.validation import (
    as_float_array,
    as_start,
    check_choice,
    check_count,
    check_instance,
    check_penalty_scale,
    check_positive,
    check_shape,
    check_stochastic,
    clock,
    minutes,
    option,
)

FloatArray = NDArray[np.float64]
#: Fields that a model may declare public.
DECLARABLE = ("levels", "utility", "penalty", "initial", "baseline", "notes")
#: Fields that are always public; all other fields that cannot be declared stay private.
ALWAYS_PUBLIC = (
    *("loads", "times", "nature", "context", "coupling", "spread_start", "shares_shown", "tilt_scale"),
    *("guess", "support", "ties", "axes", "scenario"),
)


@dataclass(frozen=True, eq=False)
class EnsembleModel:
    """An ensemble of loads, its default dynamics, and its utility.

    Time `t` counts decisions: ``times[t]`` is the instant of decision `t`, and the state at `t` is the ensemble's mean
    power over the interval that ends there. The reward of decision `t` is the utility of the state at ``t + 1``.
    """

    default: FloatArray = field(repr=False)
    """(n, n) or (T, n, n), row-stochastic: the chance of each move from level to level when nobody interferes.

    With `nature` it is the probability of each decision, (n, m) or (T, n, m), and with `context` it may depend on that,
    too, (T or 1, c, n, m).
    """
    power_kw: FloatArray = field(repr=False)
    """Power of one load at each level, (n,)."""
    utility: FloatArray = field(repr=False)
    """Aggregator's utility in dollars per load, (T + 1, n) or, with `context`, (T + 1, c, n)."""
    discomfort_penalty: float
    """Dollars per load and nat of divergence from the default."""
    loads: int = 100
    """How many loads the ensemble has (for totals only)."""
    initial: Any = field(default=None, repr=False)
    """A distribution over the states, floats (n,), or start states, integers, equally likely then; by default all."""
    times: Any = field(default=None, repr=False)
    """(T + 1,), by default quarter hours from midnight."""
    event: EventTimeline | None = field(default=None, repr=False)
    """Prices, incentive and window on the same times, for reports, price observations and pictures."""
    counts: NDArray[np.int64] | None = field(default=None, repr=False)
    """Observed transitions (n, n), for the adjacency, as private as the default; see `override`."""
    notes: tuple[str, ...] = field(default=(), repr=False)
    """How the model was made, for reports; not in the fingerprint.

    Notes may state days and numbers of readings, never powers or transitions.
    """
    public_fields: Iterable[str] = field(default=("levels", "utility", "penalty"), repr=False)
    """Fields declared public, from `DECLARABLE`; see `public`. `default` and `counts` never are."""
    nature: FloatArray | None = field(default=None, repr=False)
    """Where each decision leads, (m, n), (T, m, n) or (T or 1, c, m, n); without it a decision is the next state."""
    context: Context | None = field(default=None, repr=False)
    """A random state common to all loads: prices, the weather, an event."""
    coupling: Coupling | None = field(default=None, repr=False)
    """A cost of the loads' mean power, a limit or a target.

    It needs a spread start, and with a context one of which every (time, context) can be reached in one way only.
    """
    spread_start: bool = field(default=False, repr=False)
    """Whether the loads start spread over the states by `initial`; else all start in one state drawn from it."""
    shares_shown: bool = field(default=True, repr=False)
    """Whether observations show how the loads are spread over the states; zeros if not."""
    tilt_scale: FloatArray | None = field(default=None, repr=False)
    """Nats of tilt for an action of one, (T,); by default an upper bound on the optimal tilt."""
    guess: FloatArray | None = field(default=None, repr=False)
    """Textbook behaviour, of the shape of `default`; by default a lazy walk."""
    support: NDArray[np.bool_] | None = field(default=None, repr=False)
    """Decisions that are possible by public knowledge, of the shape of `default`; see `declared_support`."""
    ties: NDArray[np.int64] | None = field(default=None, repr=False)
    """Decisions (n, m) with equal numbers are equally likely by public knowledge; any number outside the support."""
    axes: tuple[Axis, ...] = field(default=(), repr=False)
    """The quantities that make up a state, in C order, for pictures; empty if states are power levels."""
    scenario: str = field(default="", repr=False)
    """Name of the model's scenario, which determines the signals; empty for your own model."""

    def __post_init__(self) -> None:
        default, nature, utility = self._checked_tables()
        horizon, n = len(utility) - 1, utility.shape[-1]
        power = as_float_array(self.power_kw, "power_kw", 1)
        check_shape(power, (n,), "power_kw", "one power level per state of default")
        if (power < 0).any():
            raise ValueError(f"power_kw[{int(np.argmax(power < 0))}] is negative; power levels are consumption in kW.")
        if self.event is not None and len(self.event.times) != horizon + 1:
            raise ValueError(f"event covers {len(self.event.times)} times but utility {horizon + 1}; make them agree.")
        times = self.event.times if self.times is None and self.event is not None else self.times
        checked: dict[str, Any] = {
            "default": default,
            "power_kw": power,
            "utility": utility,
            "discomfort_penalty": check_positive(self.discomfort_penalty, "discomfort_penalty"),
            "loads": check_count(self.loads, "loads"),
            "initial": as_start(self.initial, n),
            "times": check_times(times, horizon),
            "notes": _as_notes(self.notes),
            "public_fields": _as_declaration(self.public_fields),
            "nature": nature,
            "spread_start": bool(self.spread_start),
            "shares_shown": bool(self.shares_shown),
            "axes": check_axes(self.axes, n),
            "scenario": str(self.scenario),
        }
        optional: dict[str, tuple[Callable[[Any, Any], Any], Any]] = {
            "counts": (check_counts, n),
            "tilt_scale": (check_scale, horizon),
            "guess": (check_guess, default),
            "support": (check_support, default),
            "ties": (check_ties, default),
        }
        for name, (check, fitting) in optional.items():
            checked[name] = None if getattr(self, name) is None else check(getattr(self, name), fitting)
        check_penalty_scale(utility, checked["discomfort_penalty"])
        freeze(self, **checked)

    def _checked_tables(self) -> tuple[FloatArray, FloatArray | None, FloatArray]:
        """Return default, nature and utility, which must fit together and the rest."""
        for name, kind in (("context", Context), ("coupling", Coupling), ("event", EventTimeline)):
            if getattr(self, name) is not None:
                check_instance(getattr(self, name), kind, name)
        default = check_stochastic(self.default, square=self.nature is None and self.context is None)
        n, m = default.shape[-2:]
        utility = check_utility(self.utility, self.context, n)
        horizon = len(utility) - 1
        check_leading(default, "default", horizon, self.context, "(n, m)")
        nature = check_nature(self.nature, horizon, self.context, m, n)
        if self.context is not None:
            self.context.check(horizon)
        if self.coupling is not None:
            self.coupling.check(horizon, self.context, self.spread_start)
        return default, nature, utility

    @classmethod
    def from_series(
        cls,
        power: Any,
        event: DemandResponseEvent | None = None,
        *,
        loads: int = 100,
        discomfort_penalty: float = 15.0,
        public: Iterable[str] = (),
        **reading: Any,
    ) -> EnsembleModel:
        """Build the control problem of an event from a meter series.

        `power` is a PowerSeries, or kW with stamps at the starts of the intervals, `times`; it is averaged to the step
        of the event, by default that of 2 July 2018. It is one building, of which `loads` synthetic copies are
        made, or with ``profile="aggregate"`` their aggregate. Further arguments belong to
        `dp_ensemble_env.chain.estimate.series_fields`: `times`, `step`, `profile`, `n_states`, `on_unvisited`,
        `season`, `exclude`, `holidays` and `rng`. Everything is computed from the series; `public` lists the fields
        that are public knowledge, from ``"levels"``, ``"initial"``, ``"baseline"``, ``"notes"``.

        `initial` holds the states of similar days when control begins; without such a day all states are equally
        likely. Without ten complete similar days there is no customer baseline, and `notes` say why.
        """
        return cls(
            loads=loads,
            discomfort_penalty=discomfort_penalty,
            # Utility and penalty follow from arguments and the levels.
            public_fields=("utility", "penalty", *_as_declaration(public, "public")),
            **series_fields(power, event, loads=loads, **reading),
        )

    def __repr__(self) -> str:
        start, step = clock(self.times[0]), minutes(self.times[1] - self.times[0])
        facts = [
            f"{self.n_states:,} levels",
            f"{self.horizon} step{'s' * (self.horizon > 1)} of {step} from {start}",
            f"{self.loads:,} load{'s' * (self.loads > 1)}",
            f"${self.discomfort_penalty:g} per nat",
            *([] if self.context is None else [f"{self.n_contexts} contexts"]),
            *([] if self.coupling is None else [f"coupled by a {self.coupling.kind}"]),
        ]
        return f"EnsembleModel({', '.join(facts)})"

    # ------------------------------------------------------------ derived values
    @property
    def n_states(self) -> int:
        """Number of power levels."""
        return len(self.power_kw)

    @property
    def horizon(self) -> int:
        """Number of decisions, T."""
        return len(self.utility) - 1

    @property
    def step_hours(self) -> float:
        """Length of one step in hours."""
        return float((self.times[1] - self.times[0]) / np.timedelta64(1, "s")) / 3600.0

    @property
    def n_decisions(self) -> int:
        """Number of decisions of a load, m; without nature the number of states."""
        return int(self.default.shape[-1])

    @property
    def n_contexts(self) -> int:
        """Number of contexts, c; one without a context."""
        return 1 if self.context is None else len(self.context)

    @property
    def start_weights(self) -> FloatArray:
        """How likely each start is, ([c,] n)."""
        return self.initial if self.context is None else np.outer(self.context.start, self.initial)

    @property
    def is_plain(self) -> bool:
        """Whether this is the paper's model: loads choose their next state, and nothing else moves or couples them."""
        return self.nature is None and self.context is None and self.coupling is None

    @property
    def declared_support(self) -> NDArray[np.bool_] | None:
        """Decisions that are declared possible, of the shape of the default; None if nothing is declared.

        With nature a decision carries what nature needs, so most of them are impossible in a state by construction; the
        textbook's zeros say which, whatever the participants do.
        """
        if self.support is not None or self.nature is None or self.guess is None:
            return self.support
        return np.asarray(self.guess > 0)

    def tables(self) -> Tables:
        """Return the whole problem as plain arrays with every axis written out."""
        horizon, c, n = self.horizon, self.n_contexts, self.n_states
        nature = np.eye(n) if self.nature is None else self.nature
        moves = np.ones((1, 1)) if self.context is None else self.context.transition
        utility = self.utility if self.utility.ndim == 3 else self.utility[:, None]
        return Tables(
            fill(self.default, horizon, c),
            fill(nature, horizon, c),
            np.ascontiguousarray(np.broadcast_to(moves, (horizon, c, c))),
            np.ascontiguousarray(np.broadcast_to(utility, (horizon + 1, c, n))),
        )

    @cached_property
    def default_policy(self) -> FloatArray:
        """The uncontrolled ensemble as a policy of shape (T, n, m), with a context (T, c, n, m)."""
        full = fill(self.default, self.horizon, self.n_contexts)
        return full[:, 0] if self.context is None else full

    @cached_property
    def decision_power(self) -> FloatArray:
        """Expected power after each decision, shape (m,), averaged over times and contexts."""
        if self.nature is None:
            return self.power_kw
        reached: FloatArray = self.nature @ self.power_kw
        power: FloatArray = reached.reshape(-1, self.n_decisions).mean(axis=0)
        return power

    @property
    def fingerprint(self) -> str:
        """Short hash of the whole content. It depends on private data, so do not publish it."""
        digest = hashlib.sha256(repr((self.discomfort_penalty, self.loads, self.default.shape)).encode())
        arrays = [self.default, self.power_kw, self.utility, self.initial, self.times.astype("int64")]
        if not self.is_plain or self.spread_start:
            arrays += [np.array(self.spread_start), self.nature]
            if self.context is not None:
                arrays += [self.context.transition, self.context.start, self.context.features]
            arrays += [] if self.coupling is None else [self.coupling.level, self.coupling.weight]
            arrays += [] if self.shares_shown else [np.array(self.shares_shown)]
        for array in arrays:
            if isinstance(array, np.ndarray):
                plain = array + 0.0 if array.dtype.kind == "f" else array  # zero has no sign
                digest.update(np.ascontiguousarray(plain).tobytes())
        return digest.hexdigest()[:16]

    # ------------------------------------------------------------ variations
    def with_default(self, default: ArrayLike) -> EnsembleModel:
        """Return the same problem with other default dynamics, such as a released matrix, and without counts."""
        return self.override(default=np.asarray(default))

    def public(self, release: Any) -> EnsembleModel:
        """Return a model built from public fields and a release alone, which you may share.

        The release, or any object with a `matrix`, replaces the default. Fields that are not declared public are left
        out: all start states become equally likely, baseline and notes disappear, and the utility is recomputed from
        the event's prices. Raises an error if the levels or the penalty are private, or if a private utility does not
        follow from prices.

        Examples
        --------
        >>> from dp_ensemble_env.privacy import mechanism
        >>> model = EnsembleModel([[0.9, 0.1], [0.4, 0.6]], [1.0, 2.0], [[0.0, 0.0], [0.0, -1.0]], 5.0, initial=[1])
        >>> model.public(mechanism("public").release(model.default)).initial
        array([0.5, 0.5])
        """
        self.check_publishable()
        event = self.event
        if event is not None and "baseline" not in self.public_fields:
            event = replace(event, baseline_kw=None)
        utility = self.utility
        if "utility" not in self.public_fields and event is not None:
            utility = -event.price[:, None] * self.power_kw * self.step_hours
        return EnsembleModel(
            default=release.matrix,
            power_kw=self.power_kw,
            utility=utility,
            discomfort_penalty=self.discomfort_penalty,
            initial=self.initial if "initial" in self.public_fields else None,
            event=event,
            notes=self.notes if "notes" in self.public_fields else (),
            public_fields=DECLARABLE,
            **{name: getattr(self, name) for name in ALWAYS_PUBLIC},
        )

    def check_publishable(self) -> None:
        """Refuse a model that cannot be published, before a release is charged; see `public`."""
        if "levels" not in self.public_fields:
            raise ValueError(
                "the power levels come from the private series (its extremes are the outermost edges), so nothing "
                "built on them may be handed out; if they are public knowledge declare it: "
                "EnsembleModel.from_series(..., public=['levels'])."
            )
        if "penalty" not in self.public_fields:
            raise ValueError(
                f"the discomfort penalty of {self.discomfort_penalty:.4g} was computed from private readings, so "
                f"nothing built on it may be handed out; state it with {option('penalty')}, or in "
                "Python declare it to be public: public_fields=['penalty']."
            )
        if "utility" not in self.public_fields and (self.event is None or not self.is_plain):
            raise ValueError(
                "the utility was computed from private readings and does not follow from an event's prices, so nothing "
                "built on it may be handed out; declare it, public_fields=['utility'], or give the model an event."
            )

    def override(self, **changes: Any) -> EnsembleModel:
        """Return a copy with some fields changed; a misspelt name is refused.

        A new default drops the counts, which were observed with the old one, unless you also pass `counts`.
        """
        for name in changes:
            check_choice(name, "field of EnsembleModel", self.__dataclass_fields__)
        if "default" in changes:
            changes.setdefault("counts", None)
        return replace(self, **changes)


def _as_notes(notes: Any) -> tuple[str, ...]:
    if isinstance(notes, str) or not np.iterable(notes) or not all(isinstance(note, str) for note in notes):
        raise ValueError(f"notes must be a list of sentences, got {notes!r}; put a single one in a list, too.")
    return tuple(notes)


def _as_declaration(names: Any, argument: str = "public_fields") -> tuple[str, ...]:
    if isinstance(names, str) or not np.iterable(names):
        raise ValueError(f"{argument} must be a list of names, got {names!r}; put a single one in a list, too.")
    chosen = {check_choice(name, "public field", DECLARABLE) for name in names}
    return tuple(name for name in DECLARABLE if name in chosen)
