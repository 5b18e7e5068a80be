"""`dp-ensemble evaluate`: score a named agent, or a run."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from dp_ensemble_env.agents import agent_names, evaluate, evaluate_split, make_agent
from dp_ensemble_env.agents.base import privacy_line
from dp_ensemble_env.agents.evaluation import scheduled_policy
from dp_ensemble_env.agents.loading import load_agent
from dp_ensemble_env.agents.runs import remembered_environment
from dp_ensemble_env.cli.options import InEnvironment, differences, parts, say
from dp_ensemble_env.control.policies import POLICIES
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.experiments.deployment import Deployed, deploy
from dp_ensemble_env.privacy.ledger import PrivacyLedger
from dp_ensemble_env.reporting.score import Outcome, Tenths, tenths
from dp_ensemble_env.reporting.tables import number_text
from dp_ensemble_env.scenarios.problem import ProblemSettings
from dp_ensemble_env.tools.console import Progress, paragraph, table
from dp_ensemble_env.tools.files import check_writable, write_json
from dp_ensemble_env.tools.validation import check_choice, check_count


@dataclass(frozen=True, kw_only=True)
class Evaluate(InEnvironment):
    """Score a named agent, or the agent of a run folder or model file.

    The score is 0 for uncontrolled loads and 100 for the exact optimum of the environment. Plans, and all agents in a
    mean field without contexts, are evaluated exactly; otherwise the agent plays seeded episodes, and the report gives
    standard errors.

    A run folder stores its environment, so a run needs no options; options that you give override it.

    With --split the agent plays a fixed set of instances, and each is scored against its own optimum. The report gives
    the interquartile mean, a 95 % bootstrap interval and the gap to the training instances. A run plays as it was
    trained; an agent by name is computed for each instance.

    Examples
    --------
      dp-ensemble evaluate standard
      dp-ensemble evaluate runs/ppo-call-signals-seed0
      dp-ensemble evaluate digamma --action policy --privacy dirichlet:k=50
      dp-ensemble evaluate best-price --meter meter.csv --unit kW
      dp-ensemble evaluate best-price --scenario spot --split test
      dp-ensemble evaluate standard --animate event.gif
    """

    agent: Annotated[Positional[str], arg(metavar="AGENT")]
    """Run folder, model file, or name of an agent, such as standard, best-price or ppo."""
    expect: float | None = None
    """Noise that a noise-aware policy expects (default: the release's k)."""
    steps: int | None = None
    """Training steps of a learner given by name (default: as tuned)."""
    episodes: int | None = None
    """Number of episodes, if anything is random (default: 2000, or 512 in a mean field)."""
    split: Literal["train", "validation", "test"] | None = None
    """Score a whole set of instances instead of one."""
    instances: int | None = None
    """With --split, only the first N of the set."""
    seed: int = 0
    """Seed of everything random except the release."""
    json: Path | None = None
    """Write the result to this file as well."""
    animate: Path | None = None
    """Write an animation of one episode beside the uncontrolled one (.gif)."""

    @classmethod
    def remembered(cls, words: list[str]) -> Evaluate | None:
        """Return the settings of the run that the words name, which are then the defaults; None if they name none."""
        paths = (word for word in words if word not in agent_names() and Path(word).exists())
        run = next((word for word in paths if (home(word) / "config.json").is_file()), None)
        if run is None:
            return None
        environment = dict(remembered_environment(home(run) / "config.json"))
        if not environment:
            return None
        problem = environment.pop("problem")
        if any(word.split("=")[0] == "--meter" for word in words):
            problem = {**problem, "meter": None, "sha256": None}
        made = {name: environment[name] for name in ("population", "action", "privacy", "release_seed")}
        return cls(agent=run, **parts(ProblemSettings.from_dict(problem)), **made)

    def run(self) -> int:
        """Evaluate one agent."""
        if self.agent not in agent_names() and not Path(self.agent).exists():
            check_choice(self.agent, "agent (no run folder or model file either)", agent_names())
        check_count(self.seed, "--seed", 0, 2**31 - 1)
        for path in filter(None, (self.json, self.animate)):
            check_writable(path)
        if self.animate is not None:
            self.check_animation(self.animate)
        if self.split is not None:
            return self.run_split()
        if self.instances is not None:
            raise ValueError("--instances needs --split; add --split test.")
        with Progress(f"evaluating {self.agent}") as monitor:
            problem = self.load()
            env = self.make_env(problem.model)
            agent = self.make_agent(env)
            result = evaluate(agent, env, episodes=self.episodes, seed=self.seed)
            deployed = deploy(agent, env, problem.model)
            policy = None if self.population == "single" else scheduled_policy(agent, env.model, env.action_mode)
            shared = None if policy is None else tenths(env.model, policy)
            content = {"agent": self.agent, "environment": title(env), **result.to_dict()}
            content["tenths"] = None if shared is None else {k: v.tolist() for k, v in shared._asdict().items()}
            content["deployed"] = None if deployed is None else deployed.to_dict()
            if self.json:
                write_json(self.json, content)
            if self.animate:
                from dp_ensemble_env.reporting.animation import animate

                monitor.stage("drawing")
                name = "optimal" if self.agent == "standard" else Path(self.agent).name
                animate(agent, env, self.animate, name=name, score=result.score, seed=self.seed)
        show(f"{self.settings.title}: {self.agent}, {title(env)}", env, result, deployed)
        if shared is not None:
            show_tenths(shared)
        if self.animate:
            print(f"Animation: {self.animate}")
        return 0

    def run_split(self) -> int:
        """Score an agent on the instances of a set, on their true behaviour."""
        trained, settings = self.remembered([self.agent]), self.settings
        if settings != ProblemSettings(scenario=settings.scenario, instance=settings.instance):
            raise ValueError("--split takes a scenario's instances as they are; leave --meter and changes to it out.")
        if self.agent in agent_names(learns=True):
            raise ValueError(
                f"{self.agent} would be trained on every instance anew; train it once with dp-ensemble train "
                "--instances 20 and give the folder of the run."
            )
        if self.privacy is not None and (trained is None or self.privacy != trained.privacy):
            raise ValueError("--split scores on the true behaviour of each instance; leave --privacy out.")
        if self.privacy is not None:
            say("the agent was trained on a release, and is scored on the true behaviour.")
        by_name = self.agent in agent_names()
        agent = self.make_agent if by_name else load_agent(self.agent)
        played: dict[str, Any] = {"population": self.population, "action": self.action}
        effort: dict[str, Any] = {"instances": self.instances, "episodes": self.episodes, "seed": self.seed}
        with Progress(f"evaluating {self.agent}") as monitor:
            outcome = evaluate_split(agent, settings.scenario, str(self.split), **played, **effort, monitor=monitor)
            if self.json:
                write_json(self.json, {"agent": self.agent, **played, **outcome.to_dict()})
        how = "computed for each instance" if by_name else "as it was trained"
        where = f"{settings.scenario}: {self.agent}, {self.population}, {self.action} mode"
        table(f"{where} ({how})", ("", "", ""), outcome.lines())
        return 0

    def make_env(self, model: Any) -> EnsembleEnv:
        """Make the environment; what a run was trained on must be the same, unless options override it."""
        privacy: Any = self.privacy
        trained = self.remembered([self.agent])
        given = [] if trained is None else differences(self, trained)
        if given:
            say(f"{', '.join(given)} override what {self.agent} was trained with.")
        kept = home(self.agent) / "release.json"
        if trained is not None and privacy == trained.privacy and self.release_seed is None and kept.exists():
            privacy = kept  # nobody can draw it again
        env = EnsembleEnv(model, self.population, self.action, privacy=privacy, release_seed=self.release_seed)
        if trained is not None and env.release is not None and not given:
            self.check_release(env)
        return env

    def check_release(self, env: EnsembleEnv) -> None:
        """Refuse to evaluate on another release than the run's, which is drawn again from data that may change."""
        file = home(self.agent) / "ledger.json"
        if not file.exists():
            raise ValueError(f"the ledger of the run, {file}, is gone; restore it from a copy.")
        assert env.release is not None
        if not PrivacyLedger.from_json(file.read_text(encoding="utf-8")).knows(env.release):
            source = "the scenario" if self.settings.meter is None else f"the meter file {self.settings.meter}"
            raise ValueError(
                f"{source} has changed since: its release is not the one that {self.agent} was trained on; restore it, "
                "or train again."
            )

    def make_agent(self, env: EnsembleEnv) -> Any:
        """Make the agent by name, or load it from a run folder or model file."""
        if self.agent not in agent_names():
            return load_agent(self.agent)
        settings: dict[str, Any] = {}
        if self.agent in POLICIES and self.agent != "standard":
            if self.expect is None and (env.release is None or env.release.event.type != "dirichlet"):
                raise ValueError(f"agent {self.agent!r} expects noise; say how much, as in --expect 50.")
            settings["k"] = self.expect
        if self.steps is not None:
            settings |= {"steps": self.steps, "seed": self.seed}
        return make_agent(self.agent, env, **settings)

    def check_animation(self, file: Path) -> None:
        """Check for missing packages before the work."""
        from dp_ensemble_env.reporting.animation import check_suffix

        check_suffix(file)
        if self.split is not None:
            raise ValueError("--animate shows one instance; leave --split out.")
        importlib.import_module("pygame")
        importlib.import_module("PIL")


def home(agent: str) -> Path:
    """Return the folder of a run, given as such or by a file in it."""
    return Path(agent) if Path(agent).is_dir() else Path(agent).parent


def title(env: EnsembleEnv) -> str:
    """Describe the environment in a few words."""
    loads = "the mean field" if env.population is None else f"{env.population} load{'s' * (env.population > 1)}"
    return f"{loads}, {env.action_mode} mode" + (f", on a release ({env.release.event.type})" if env.release else "")


def show(heading: str, env: EnsembleEnv, result: Outcome, deployed: Deployed | None) -> None:
    """Print the report, with one line on privacy; for an agent on a release, its deployed score comes first."""
    if deployed is not None:
        paragraph(f"{heading}\n{deployed}\n")
    table(heading if deployed is None else "On the release", ("", "", ""), result.lines())
    if deployed is None:
        paragraph(f"{env.ledger.statement() if env.release else privacy_line(result.privacy)}\n")


def show_tenths(shared: Tenths) -> None:
    """Print who gives how much."""
    rows = [[f"{i}", *(number_text(x, 0) for x in line)] for i, line in enumerate(zip(*shared, strict=True), 1)]
    note = "Tenths of the loads in order of uncontrolled use, highest first; exact expected values given their start."
    table("Who gives how much", ("tenth", "uncontrolled, kWh", "delivered, kWh", "discomfort, $"), rows, notes=[note])
