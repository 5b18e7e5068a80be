"""An environment's private side: charges, draws, and the data that may be shared.

`Behaviour` holds the current models. Without privacy they are the true models. With a release they hold only it and
public fields; with ``redraw="episode"`` each episode has its own. Each charge is saved before any noise is drawn.
"""

from __future__ import annotations

import copy
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dp_ensemble_env.envs.settings import EnvSettings
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy.mechanisms.base import Event, Mechanism, fingerprint
from dp_ensemble_env.privacy.release import Release

if TYPE_CHECKING:
    from dp_ensemble_env.privacy.ledger import PrivacyLedger

#: Label of a release that an environment was given.
ELSEWHERE = "release made elsewhere"
#: δ of the ε that renderings print.
SHOWN_DELTA = 1e-6
#: Arguments that say how a release was drawn, and hence leave together with the private model.
_DRAWN = ("release_seed", "redraw")


class Behaviour:
    """The models in force, and the ledger that pays for them."""

    def __init__(self, settings: EnvSettings) -> None:
        self.settings = settings
        self.models = settings.models
        self.release: Release | None = None
        self._ledger = _as_ledger(settings.ledger)
        self._charged: list[tuple[str, Event, str]] = []
        self._line: tuple[int, str] = (-1, "")
        self._mechanism: Mechanism | None = None
        self._true: EnsembleModel | None = None
        privacy = settings.privacy
        if privacy is not None:
            settings.models[0].check_publishable()  # before anything is charged
        if isinstance(privacy, Release):
            model, n, shape = settings.models[0], settings.models[0].n_states, privacy.log_matrix.shape
            if shape not in (model.default.shape, (n, n), (model.horizon, n, n)):
                raise ValueError(
                    f"the release has shape {shape}, but the model has {n} states and {model.horizon} steps."
                )
            self.put(model.public(privacy), privacy)
            self._account_for(privacy, given=settings.ledger is not None)
        elif privacy is not None:
            self._mechanism, self._true = privacy, settings.models[0]
            self.put(*self.draw(0))
        if self.release is not None and settings.redraw == "never":
            # The environment keeps nothing that is private: from here on the release is all it knows.
            self._true = None
            self.settings = self.public_settings()

    # ------------------------------------------------------------ draws
    def draw(self, index: int) -> tuple[EnsembleModel, Release]:
        """Charge the release of episode `index`, unless the ledger has it already; return its model and the release.

        The release seed fixes the sequence of releases: every environment with that seed gets the same matrix at the
        same index, so drawing it again reveals nothing new and is not charged again.
        """
        if self._mechanism is None or self._true is None:
            raise ValueError(
                "this copy of the environment cannot draw again, since the private data stayed where it was made; "
                "make one there, or go on with redraw='never'."
            )
        start = self.settings.release_seed
        later = np.random.SeedSequence([start, index]).generate_state(4)  # 128 bits, so that no two meet by accident
        seed = start if index == 0 else int.from_bytes(later.tobytes(), "little")
        data, terms = self._mechanism.data_of(self._true), self._mechanism.terms_of(self._true)
        event = self.ledger.priced(self._mechanism.event(data, seeding="seed", **terms))
        label = self.ledger.name_of(f"{seed} {event.digest} {fingerprint(data)}")
        release = None
        if self.ledger.has(label, event):  # charged: the same numbers with the same claim are the release it knows
            release = Release(self._mechanism.release(data, seed, **terms).log_matrix, event.public)
        if release is None or not self.ledger.knows(release):
            release = self.ledger.release(self._mechanism, data, seed, label=label, **terms)
            self.ledger.declare(*self._true.public_fields)
        self._charged.append((label, event.public, release.digest))
        return self._true.public(release), release

    def put(self, model: EnsembleModel, release: Release) -> None:
        """Put what was drawn in force."""
        self.models, self.release = (model,), release

    def _account_for(self, release: Release, given: bool) -> None:
        """Charge a release that was made elsewhere, unless it was; a ledger that was given must have it."""
        known = self.ledger.knows(release)
        if given and not known:
            raise ValueError(
                "the ledger has no entry for this release, so nobody has paid for it; charge it with "
                "ledger.record(release), or draw it with ledger.release(mechanism, data)."
            )
        event = self.ledger.priced(release.event)
        if not known:
            self.ledger.record(release, label=ELSEWHERE).declare(*self.settings.models[0].public_fields)
        self._charged.append((ELSEWHERE, event.public, release.digest))

    # ------------------------------------------------------------ what was spent
    @property
    def ledger(self) -> PrivacyLedger:
        """What the environment has spent, and, if it was given no ledger, the others of this process with it."""
        if self._ledger is None:
            from dp_ensemble_env.privacy.ledger import PrivacyLedger

            if self.settings.privacy is not None:
                return PrivacyLedger.of_process()
            # Nothing leaves by running the true dynamics, so the others need not know; but nothing is private either.
            self._ledger = PrivacyLedger().record_deterministic("the environment runs the true dynamics")
        return self._ledger

    def line(self) -> str:
        """Say in one line what is private and what was spent."""
        if self.release is None:
            return "Privacy: none, these are the true dynamics"
        spent = self.ledger.releases
        if spent != self._line[0]:
            self._line = spent, self._spent(self.release, spent)
        return self._line[1]

    def _spent(self, release: Release, spent: int) -> str:
        epsilon = self.ledger.spent(SHOWN_DELTA)
        amount = f"ε = {epsilon:.3g} at δ = {SHOWN_DELTA:g}"
        if not np.isfinite(epsilon):
            amount = "no ε for all inputs" + (" (floor = 0)" if getattr(release.event, "bare", False) else "")
        seeded = "; seeded, so repeatable" if release.reproducible else ""
        kind, settings = release.event.type.capitalize(), release.event.headline.replace("=", " = ")
        return f"Privacy: {spent} {kind} release{'s' * (spent != 1)}, {settings}: {amount}{seeded}"

    # ------------------------------------------------------------ what may leave
    def public_settings(self) -> EnvSettings:
        """Return the settings of an environment on the present release, made of public fields alone; no seed."""
        if self.release is None:
            return self.settings
        kept: dict[str, Any] = {"models": self.models, "privacy": self.release, "ledger": None}
        return replace(self.settings, **kept, redraw="never", release_seed=0)

    def public_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of an environment as they may leave in a spec: no private model, no ledger."""
        if self.release is None:
            return arguments
        kept = {name: value for name, value in arguments.items() if name != "ledger"}
        if not isinstance(kept.get("model"), (EnsembleModel, list, tuple)):  # a name, or numbers that are public
            return kept
        kept = {name: value for name, value in kept.items() if name not in _DRAWN}
        return {**kept, "model": self.models[0], "privacy": self.release}

    def __getstate__(self) -> dict[str, Any]:
        """Leave everything private behind: a copy that is handed out cannot draw again."""
        state = dict(self.__dict__)
        if self.release is not None:
            state.update(_true=None, settings=self.public_settings())
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self.release is not None and self._ledger is None:
            for label, event, digest in self._charged:
                self.ledger.adopt(label, event, digest)

    def __deepcopy__(self, memo: dict[int, Any]) -> Behaviour:
        """Copy within the process: the twin may draw again, and shares the ledger, as it would share a file."""
        twin = Behaviour.__new__(Behaviour)
        memo[id(self)] = twin
        twin.__dict__.update({name: copy.deepcopy(value, memo) for name, value in self.__dict__.items()})
        return twin


def _as_ledger(ledger: Any) -> PrivacyLedger | None:
    if ledger is None:
        return None
    from dp_ensemble_env.privacy.ledger import PrivacyLedger

    if isinstance(ledger, (str, os.PathLike)):
        return PrivacyLedger(ledger)
    if not isinstance(ledger, PrivacyLedger):
        raise ValueError(f"ledger must be a PrivacyLedger or the path of one, got {type(ledger).__name__}.")
    return ledger
