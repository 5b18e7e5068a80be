"""`dp-ensemble dataset`: offline data sets for Minari."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dp_ensemble_env.cli.options import InEnvironment, keeping, say
from dp_ensemble_env.experiments.datasets import (
    CAMPUS,
    DatasetSettings,
    Target,
    default_name,
    make_datasets,
    minari_root,
)
from dp_ensemble_env.scenarios.problem import ModelSettings
from dp_ensemble_env.tools.console import Progress, paragraph
from dp_ensemble_env.tools.files import resolved


@dataclass(frozen=True, kw_only=True)
class Dataset(InEnvironment):
    """Write offline data sets for Minari, with exact reference scores.

    The kinds, each a data set dp_ensemble/<name>/<kind>-v0:
      uncontrolled  nobody interferes, no noise
      ad-hoc        today's practice, a fixed shed during the event
      medium        a learner, stopped at the first score of 50: PPO, or apg for
                    the tilts of a model with nature, context or coupling
                    (not in policy mode)
      standard      the optimal policy (not in price mode)
      mixed         equal shares of the kinds above, in turn

    Load one with minari.load_dataset("dp_ensemble/<name>/<kind>-v0"). 100 times Minari's normalized score is the score
    of this benchmark. With --privacy a data set contains only one release of the matrix, and states its guarantee. A
    scenario's release is seeded; a meter file's release uses the operating system's entropy unless you give
    --release-seed. Make all kinds in one run: a second run draws a second release.

    Examples
    --------
      dp-ensemble dataset
      dp-ensemble dataset --population single --kinds standard
      dp-ensemble dataset --action policy --privacy dirichlet:k=50,floor=0.05
      dp-ensemble dataset --meter meter.csv --unit kW --privacy dirichlet:k=50
    """

    problem: ModelSettings = ModelSettings(scenario=CAMPUS)
    kinds: tuple[str, ...] = ()
    """Kinds to make (default: all kinds possible in the action mode)."""
    episodes: int = 200
    """Episodes of each kind."""
    noise: float = 0.01
    """Standard deviation of the exploration; 0 for none."""
    name: str | None = None
    """Middle part of the names (default: made from the settings)."""
    release_seed: int | None = None
    """Seed of the release (default: 0 for a scenario, none for a meter)."""
    seed: int = 0
    """Seed of the first episode, and of the training."""
    output: Path | None = None
    """Folder for the data sets (default: where Minari looks for them)."""
    force: bool = False
    """Replace data sets of the same name."""

    def run(self) -> int:
        """Make the data sets."""
        names = ("population", "action", "kinds", "episodes", "noise", "seed", "privacy", "release_seed")
        settings = DatasetSettings(**{name: getattr(self, name) for name in names})
        name = default_name(self.settings, settings) if self.name is None else self.name
        # Minari reads its folder from the environment and passes paths on, so it must not depend on where we are.
        target = Target(resolved(self.output or minari_root()), name, self.force)
        minari_root()  # refuses to begin without Minari
        target.ids(settings.kinds)
        if self.privacy is None and self.settings.meter is not None:
            say("without --privacy the data sets disclose the transition matrix of your meter.")
        with Progress("reading") as monitor, keeping(lambda: "the data sets that were announced are complete"):
            privacy = make_datasets(self.load(), settings, target, monitor, print)
        print(f"in {target.root}")
        paragraph(privacy)
        return 0
