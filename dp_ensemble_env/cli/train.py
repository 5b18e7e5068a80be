"""`dp-ensemble train`: train a learner and keep the run."""

from __future__ import annotations

import importlib.util
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tyro.conf import UseAppendAction

from dp_ensemble_env.agents import agent_names
from dp_ensemble_env.agents.base import privacy_line
from dp_ensemble_env.agents.learners import tuned_settings
from dp_ensemble_env.agents.runs import CHECKPOINTS
from dp_ensemble_env.cli.options import InEnvironment, keeping
from dp_ensemble_env.tools.console import Progress, paragraph
from dp_ensemble_env.tools.files import check_writable
from dp_ensemble_env.tools.validation import check_choice, check_count

if TYPE_CHECKING:
    from dp_ensemble_env.agents.train import RunFolder
    from dp_ensemble_env.envs.settings import Privacy
    from dp_ensemble_env.experiments.deployment import Deployed
    from dp_ensemble_env.model import EnsembleModel


@dataclass(frozen=True, kw_only=True)
class Train(InEnvironment):
    """Train a learner and watch its score between 0 (uncontrolled) and 100 (the exact optimum).

    The run folder (by default named after the settings, in runs/) holds configuration, versions, ledger, results,
    checkpoints, policy, TensorBoard logs and environment, so dp-ensemble evaluate RUN needs no options.
    --resume restarts from the last checkpoint; the result is unchanged.

    Examples
    --------
      dp-ensemble train
      dp-ensemble train --algo sac --steps 20000 --target 97
      dp-ensemble train --algo apg --action tilt --steps 20000
      dp-ensemble train --privacy dirichlet:k=50,floor=0.01
      dp-ensemble train --population single --set n_envs=64
      dp-ensemble train --scenario spot --instances 20
      dp-ensemble train --meter meter.csv --unit kW --date 2018-07-02
    """

    algo: str = "ppo"
    """Name of the learner."""
    steps: int | None = None
    """Environment steps, rounded up to a whole rollout (default: as tuned)."""
    target: float | None = None
    """Stop at this score."""
    interval: int | None = None
    """Steps between scores and checkpoints (default: a twentieth of all)."""
    set: UseAppendAction[tuple[str, ...]] = ()
    """Change a hyper-parameter, such as n_envs=64; may be repeated."""
    instances: int | None = None
    """Draw one of the first N training instances for each episode (default: always play --instance)."""
    no_tensorboard: bool = False
    """Write no TensorBoard logs."""
    action: str = "signals"
    """Action mode: signals, price, tilt, policy, discrete, or a registered one."""
    release_seed: int | None = None
    """Seed of the release (default: 0 for a scenario, none for a meter); anyone who knows it can remove the noise."""
    seed: int = 0
    """Seed of everything random except the release."""
    output: Path | None = None
    """Run folder (default: in runs/, named after the settings)."""
    resume: bool = False
    """Continue the run."""

    def run(self) -> int:
        """Train with progress, and say how it went."""
        from dp_ensemble_env.agents.train import RunFolder, TrainingSettings, train
        from dp_ensemble_env.envs.ensemble import EnsembleEnv
        from dp_ensemble_env.experiments.deployment import deploy

        check_choice(self.algo, "--algo", agent_names(learns=True))
        check_count(self.seed, "--seed", 0, 2**31 - 1)
        for name, value in (("--steps", self.steps), ("--interval", self.interval)):
            check_count(1 if value is None else value, name)
        tuned_settings(self.algo, "mean-field", self.action)  # refuses modes that it does not know
        settings = TrainingSettings(self.seed, self.steps, self.target, self.interval, set_options(self.set))
        scenario = self.settings.scenario if self.settings.meter is None else None
        logs = not self.no_tensorboard
        if logs and importlib.util.find_spec("tensorboard") is None:
            raise ImportError("TensorBoard is missing; pip install 'dp-ensemble-env[rl]', or pass --no-tensorboard.")
        folder = Path("runs") / self.title() if self.output is None else self.output
        keep = RunFolder(folder, self.resume, logs, self.environment())
        keep.check()
        check_writable(folder, folder=True)
        models = self.training_instances()
        model = self.load().model
        privacy, seed = release_of(model, keep), keep.environment["release_seed"]
        env = EnsembleEnv(model, self.population, self.action, privacy=privacy, release_seed=seed)
        with Progress(f"{self.algo} in {folder}") as monitor, keeping(lambda: _kept(folder)):

            def progress(done: int, planned: int, score: float) -> None:
                monitor.advance(done, f"{done:,} of {planned:,} steps, score {score:.1f}", planned)

            agent = train(self.algo, env, settings, keep=keep, progress=progress, models=models, scenario=scenario)
        report(self.settings.title, agent, folder, self.target, deploy(agent, env, model))
        return 0

    def environment(self) -> dict[str, Any]:
        """Describe the environment, so that it can be made again from the run folder."""
        problem = self.settings.to_dict()
        if self.privacy is not None:
            # A hash of the meter file is a function of private data, and run folders are passed on.
            problem["sha256"] = None
        seed = 0 if self.release_seed is None and self.settings.meter is None else self.release_seed
        made = {"population": self.population, "action": self.action, "privacy": self.privacy}
        return {"problem": problem, **made, "release_seed": seed}

    def title(self) -> str:
        """Name the run after its settings."""
        parts = [self.algo, self.settings.title, self.action]
        if self.population != "mean-field":
            parts.append(f"{self.population}loads" if isinstance(self.population, int) else self.population)
        if self.privacy is not None:
            parts.append(self.privacy.replace(":", "-").replace("=", ""))
        parts += [] if self.instances is None else [f"{self.instances}instances"]
        return re.sub(r"[^\w.-]+", "_", "-".join([*parts, f"seed{self.seed}"]))

    def training_instances(self) -> list[EnsembleModel]:
        """Make the instances to train on; none if there is to be but one."""
        if self.instances is None:
            return []
        check_count(self.instances, "--instances", maximum=1000)
        if self.settings.meter is not None or self.settings.instance != 0:
            raise ValueError("--instances takes a scenario's own, from the first on; leave --meter and --instance out.")
        if self.privacy is not None:
            raise ValueError("--instances trains on the true behaviour of each; leave --privacy out, or train on one.")
        return [replace(self.settings, instance=i).build().model for i in range(self.instances)]


def set_options(pairs: tuple[str, ...]) -> dict[str, Any]:
    """Read ``name=value`` pairs; values are JSON, and text where they are not."""
    changes: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise ValueError(f"--set takes name=value, got {pair!r}.")
        try:
            changes[name.strip()] = json.loads(value)
        except json.JSONDecodeError:
            changes[name.strip()] = value
    return changes


def release_of(model: EnsembleModel, keep: RunFolder) -> Privacy | None:
    """Return the run's mechanism, or of a meter its release, from the folder or drawn from the system's entropy."""
    from dp_ensemble_env.privacy.ledger import PrivacyLedger
    from dp_ensemble_env.privacy.mechanisms import as_privacy
    from dp_ensemble_env.privacy.release import Release

    spec, file = keep.environment["privacy"], keep.path / "release.json"
    if spec is None or keep.environment["release_seed"] is not None:
        return spec if spec is None else as_privacy(spec)
    if keep.resume and file.exists():
        return Release.load(file)
    drawn = as_privacy(spec)
    if isinstance(drawn, Release):
        return drawn
    return PrivacyLedger.of_process().release(drawn, drawn.data_of(model), **drawn.terms_of(model))


def report(problem: str, agent: Any, folder: Path, target: float | None, deployed: Deployed | None) -> None:
    """Print the score, of a private run also where it is deployed, and one line on privacy."""
    kept = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    results, where = kept["evaluation"], " on the release" if kept.get("scored_on") == "the release" else ""
    error = "" if results["exact"] else f" ± {results['score_error']:.2f} (standard error)"
    stopped = "; target reached" if target is not None and agent.curve[-1][1] >= target else ""
    paragraph(
        f"{problem}: score{where} {results['score']:.2f}{error} after {agent.steps:,} steps in {agent.seconds:.0f} s"
        f"{stopped}; ${results['gap']:.2f} per load below the optimum; in {folder}"
    )
    paragraph(privacy_line(agent.privacy) if deployed is None else str(deployed))


def _kept(folder: Path) -> str:
    if any((folder / name).exists() for name in CHECKPOINTS):
        return f"what came before the last checkpoint is kept in {folder}, add --resume to go on"
    return "no checkpoint was saved"
