"""`dp-ensemble privacy ...`: compute, calibrate, spend and audit guarantees."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from rich.text import Text

from dp_ensemble_env.cli.options import OnProblem, keeping, say
from dp_ensemble_env.experiments import attacks
from dp_ensemble_env.experiments.frontier import FrontierSettings
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy.accounting.compose import RowGroup, calibrate_k, composed_epsilon, renyi_epsilon
from dp_ensemble_env.privacy.accounting.divergence import theorem2_epsilon, worst_case_epsilon
from dp_ensemble_env.privacy.adjacency import AGGREGATE_LIMIT, adjacency_from_counts
from dp_ensemble_env.privacy.fleet import Fleet
from dp_ensemble_env.privacy.ledger import PrivacyLedger, require_guarantee
from dp_ensemble_env.privacy.mechanisms import Mechanism, mechanism
from dp_ensemble_env.privacy.mechanisms.fleet_sums import FleetMechanism
from dp_ensemble_env.privacy.statement import release_guarantee
from dp_ensemble_env.reporting.tables import write_csv
from dp_ensemble_env.scenarios.problem import ForecastSettings, MeterSettings, ProblemSettings
from dp_ensemble_env.tools.console import Progress, paragraph, table
from dp_ensemble_env.tools.files import check_writable, write_json
from dp_ensemble_env.tools.validation import check_choice, check_count

KS = (5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0)


@dataclass(frozen=True, kw_only=True)
class OfRows:
    """A claim about rows of the Dirichlet mechanism's input."""

    floor: float = 0.1
    """Least entry before the draw."""
    h: float = 0.03
    """Adjacency: L1 distance of two rows."""
    delta: float = 1e-6
    """Probability of exceeding epsilon."""
    rows: int = 20
    """Rows that one unit touches."""
    entries: Literal["two", "any"] = "two"
    """Entries of a row that may differ."""

    def sentence(self, k: float) -> str:
        """Say what a release at this k guarantees."""
        return release_guarantee(k, self.h, self.floor, self.delta, self.rows, entries=self.entries)


@dataclass(frozen=True, kw_only=True)
class Guarantee(OfRows):
    """State the guarantee of a release, in one line and in a table over k.

    Examples
    --------
      dp-ensemble privacy guarantee --k 50 --floor 0.1 --rows 20
    """

    k: float = 50.0
    """Concentration of the Dirichlet mechanism."""
    ks: tuple[float, ...] = KS
    """Values of k for the table."""

    def run(self) -> int:
        """Print one sentence and a table over k."""
        rows = check_count(self.rows, "--rows")
        paragraph(self.sentence(self.k))
        if self.floor == 0:
            return 0
        title = f"epsilon at delta={self.delta:g}, h={self.h:g}, floor={self.floor:g}"
        headings = ("k", "Theorem 2, 1 row", "exact, 1 row", f"exact, {rows} rows", f"any entries, {rows} rows")
        lines: list[list[Text]] = []
        with Progress("composing", len(ks := sorted({*self.ks, self.k}))) as monitor:
            for k in ks:
                groups = [RowGroup(k, self.floor, self.h, rows)]
                line = [
                    f"{k:g}",
                    self.theorem2(k),
                    number(worst_case_epsilon(self.delta, k, self.h, self.floor)),
                    number(composed_epsilon(self.delta, groups)),
                    number(renyi_epsilon(self.delta, groups, "any")),
                ]
                lines.append([Text(cell, "bold" if k == self.k else "") for cell in line])
                monitor.advance(len(lines))
        note = (
            "Theorem 2: the paper's bound, corrected (omega_bar = omega, two protected entries). Exact: the dominating "
            "pair, composed over rows. Any entries: rows that differ by h in total, in any number of entries, which is "
            "what removing a participant does. h describes the mechanism's input: mixing a row of s successors with "
            f"the floor shrinks the data's h by 1 - floor*s. Note that {AGGREGATE_LIMIT}."
        )
        table(title, headings, lines, notes=(note,))
        return 0

    def theorem2(self, k: float) -> str:
        """Return Theorem 2's epsilon, or a dash where its rows do not fit."""
        try:
            return number(theorem2_epsilon(k, self.h, self.floor, self.floor, 2, self.delta))
        except ValueError:
            return "-"


@dataclass(frozen=True, kw_only=True)
class Calibrate(OfRows):
    """Find the largest k that reaches a target.

    Examples
    --------
      dp-ensemble privacy calibrate --epsilon 8 --floor 0.1 --rows 20
    """

    epsilon: float
    """Target epsilon."""

    def run(self) -> int:
        """Print the largest k for a target, and what it guarantees."""
        k = calibrate_k(self.epsilon, self.delta, self.h, self.floor, self.rows, entries=self.entries)
        paragraph(f"k = {k:.6g}")
        paragraph(self.sentence(k))
        return 0


@dataclass(frozen=True, kw_only=True)
class Release:
    r"""Draw one private matrix: charge the ledger, draw, write.

    --fleet protects a participant; use --privacy gaussian:epsilon=1, laplace or posterior.

    Examples
    --------
      dp-ensemble privacy release --privacy dirichlet:k=23,floor=0.07 \
          --output private.json --ledger ledger.jsonl
      dp-ensemble privacy release --meter meter.csv --unit kWh --stamp start \
          --privacy dirichlet:k=23,floor=0.05 --output private.json \
          --ledger ledger.jsonl
      dp-ensemble privacy release --fleet meters.csv --unit kW --edges 0 5 10 20 \
          --privacy gaussian:epsilon=1 --output p.json --ledger ledger.jsonl
    """

    output: Path
    """File for the private matrix (.json or .npz)."""
    ledger: Path
    """Ledger file; made if it does not exist."""
    privacy: str = "dirichlet:k=50"
    """The mechanism."""
    scenario: str = "campus-event"
    """Built-in problem to take the matrix from."""
    levels: int | None = None
    """Number of power levels."""
    h: float = 0.03
    """Adjacency: L1 distance of two rows."""
    transitions: float | None = None
    """Take h = 2C/N per row from the counts, with this C, instead of --h."""
    delta: float = 1e-6
    """Probability of exceeding epsilon."""
    meter: MeterSettings = MeterSettings()
    fleet: Path | None = None
    """Meters of the participants: a wide file, or a folder of files."""
    edges: tuple[float, ...] | None = None
    """Public bounds of the power levels, in kW."""
    step_minutes: float = 15.0
    """Public time between the participants' readings, in minutes."""
    id_column: str | None = None
    """Column of a long file that names the participant of each line."""
    no_guarantee: bool = False
    """Draw even if no guarantee holds for all inputs."""
    budget: tuple[float, float] | None = None
    """Refuse to exceed this epsilon and delta."""
    label: str = "dp-ensemble privacy release"
    """What the release is for."""
    seed: int | None = None
    """Seed: repeatable, so NOT private (default: the system's entropy)."""
    force: bool = False
    """Replace what is there."""

    def run(self) -> int:
        """Charge and draw one private matrix, and print the privacy line."""
        if self.output.suffix not in (".json", ".npz"):
            raise ValueError(f"--output {self.output.name} needs the ending .json or .npz.")
        if self.output.exists() and not self.force:
            raise ValueError(f"{self.output} exists; name another file, or add --force to replace it.")
        drawn = mechanism(self.privacy)
        data, terms = self.source(drawn)
        if not self.no_guarantee:
            event = drawn.event(data, **terms)
            try:
                require_guarantee(event, self.delta)
            except ValueError as error:
                raise ValueError(f"{str(error).rstrip('.')}; or add --no-guarantee to draw it all the same.") from error
        ledger = PrivacyLedger(self.ledger, self.budget)
        with Progress("drawing"):
            release = ledger.release(drawn, data, self.seed, label=self.label, **terms)
        release.save(self.output)
        paragraph(f"Wrote {self.output}: {release}")
        paragraph(f"Booked in {self.ledger}: {ledger.releases} release(s) so far.")
        if self.seed is not None:
            paragraph("A seeded release is NOT private: anyone who knows the seed can remove the noise. To publish, "
                      "leave --seed out.")  # fmt: skip
        card = ledger.statement(self.delta)
        page, _ = card.save(self.output)
        paragraph(f"Privacy card: {page}")
        paragraph(str(card))
        return 0

    def source(self, drawn: Mechanism) -> tuple[Any, dict[str, Any]]:
        """Return what to draw from, and the public terms of the draw."""
        if self.fleet is None:
            if self.edges is not None:
                raise ValueError("--edges bounds the levels of a fleet; give the fleet with --fleet.")
            if isinstance(drawn, FleetMechanism):
                raise ValueError(
                    f"the {drawn.name} mechanism protects participants; give their meters with --fleet and the public "
                    "bounds of the power levels with --edges."
                )
            default = self.meter.meter is not None and self.scenario == type(self).scenario  # a meter stands for itself
            scenario = {} if default else {"scenario": self.scenario}
            settings = ProblemSettings.of(self.meter, **scenario, levels=self.levels, dynamics="pooled")
            problem = settings.build()  # one matrix, not one for each step
            say(*problem.notes)
            model, counts = problem.model, cast(Any, problem.model.counts)
            h = self.h if self.transitions is None else adjacency_from_counts(counts, self.transitions)
            return model.default, {"h": h} if drawn.name == "dirichlet" else {}
        if self.meter.meter is not None:
            raise ValueError("--meter is one building and --fleet are many participants; give one of them.")
        if self.edges is None:
            raise ValueError(
                "--edges is missing: the bounds of the power levels must be public, so state them in kW, as in "
                "--edges 0 5 10 20."
            )
        other = ("meter", "column", "holidays")
        given = {name: value for name, value in vars(self.meter).items() if value is not None and name not in other}
        given |= {"step_minutes": self.step_minutes, "id_column": self.id_column}
        with Progress(f"reading {self.fleet}"):
            return Fleet.read(self.fleet, edges=self.edges, **given), {}


@dataclass(frozen=True, kw_only=True)
class Audit:
    """Attack the mechanism, and practices that only look private.

    With --participants, the attack guesses whether one more participant joined: from the release, from a plan and from
    an agent trained on it. Exit status 1 if an attack contradicts the theory.

    Examples
    --------
      dp-ensemble privacy audit
      dp-ensemble privacy audit --k 20 --draws 1000000
      dp-ensemble privacy audit --participants 60 --privacy gaussian:epsilon=4
    """

    attack: attacks.AttackSettings = attacks.AttackSettings()
    participants: int | None = None
    """Attack the protection of one participant among this many, not of a row."""
    privacy: str | None = None
    """With --participants, the mechanism (default: gaussian:epsilon=4)."""

    def run(self) -> int:
        """Attack a claim about rows, or one about participants; status 1 if an attack surprises."""
        how, confidence = self.attack, f"hold with confidence {attacks.CONFIDENCE:.6f} each"
        if self.participants is None:
            if self.privacy is not None:
                raise ValueError("--privacy is attacked through participants; say how many, as in --participants 60.")
            with Progress("attacking") as monitor:
                tried: list[Any] = attacks.attack(how, monitor)
            title = f"epsilon at delta={how.delta:g}, k={how.k:g}, h={how.h:g}, floor={how.floor:g}"
            headings: tuple[str, ...] = ("attacked", "shown, at least", "claimed", "verdict")
            rows = [[one.name, number(one.shown), one.claimed, one.verdict] for one in tried]
            note = (
                f"Lower bounds {confidence} (Clopper-Pearson, threshold from the other half); the mean of several "
                "draws must show more than one draw's epsilon and at most the composed one."
            )
        else:
            draws = attacks.CanarySettings.draws if how.draws is None else how.draws
            numbers = {"draws": draws, "releases": max(100, draws // 2), "agents": max(100, draws // 25)}
            spec = self.privacy or attacks.CanarySettings.privacy
            about = attacks.CanarySettings(spec, self.participants, **numbers, seed=how.seed)
            with Progress("attacking") as monitor:
                tried = attacks.attack_participants(about, monitor)
            title = f"epsilon at delta={tried[0].delta:g} of {spec}, for one participant among {self.participants}"
            headings, rows = attacks.HEADINGS, [list(one.cells()) for one in tried]
            note = (
                f"A canary participant joined, or did not; draws are counted for each. Lower bounds {confidence} "
                "(direction and threshold from the other half). A bound of 0 shows nothing."
            )
        styles = ["" if one.good else "bold red" for one in tried]
        lines = [[Text(cell, style) for cell in row] for row, style in zip(rows, styles, strict=True)]
        table(title, headings, lines, notes=(note,))
        return 0 if all(one.good for one in tried) else 1


@dataclass(frozen=True, kw_only=True)
class Frontier:
    r"""Measure the score of plans against epsilon, for releases that protect a participant.

    Varies the number of participants, the mechanism and the target, and compares with a plan without data.

    Examples
    --------
      dp-ensemble privacy frontier --participants 1000 --epsilons 1 4
      dp-ensemble privacy frontier --instances 0 1 2 --heterogeneity 30 8 \
          --mechanisms gaussian laplace posterior
    """

    study: FrontierSettings = FrontierSettings(
        instances=(0,), heterogeneity=(30.0,), epsilons=(0.5, 1.0, 2.0, 4.0), mechanisms=("adaptive",)
    )
    output: Path = Path("runs/frontier")
    """Folder to write to."""

    def run(self) -> int:
        """Measure, draw and write the frontier."""
        from dp_ensemble_env.experiments import frontier
        from dp_ensemble_env.reporting.plots import plot_frontier  # needs matplotlib

        check_writable(self.output, folder=True)
        with Progress("measuring") as monitor, keeping(lambda: "nothing was written"):
            points = frontier.measure(self.study, monitor)
            monitor.stage("drawing")
            self.output.mkdir(parents=True, exist_ok=True)
            picture = plot_frontier(points, self.output / "frontier.png")
        headings, rows = frontier.table(points)
        note = (
            "Deployed scores (as a tilt, on the true behaviour): mean / worst over the draws. Without data: a plan "
            "computed from a public guess, ε = 0. Participants are simulated; a release protects one participant's "
            "whole record (add or remove)."
        )
        table("Score against ε", headings, rows, keep=4, notes=(note,))
        write_csv(self.output / "frontier.csv", headings, rows)
        write_json(self.output / "frontier.json", frontier.to_json(self.study, points))
        print(f"Picture: {picture}\nTables:  {self.output}/frontier.csv, frontier.json")
        return 0


@dataclass(frozen=True, kw_only=True)
class Regret(OnProblem):
    r"""Split the loss of controllers against the optimum into sampling, privacy and learning.

    Examples
    --------
      dp-ensemble privacy regret
      dp-ensemble privacy regret --participants 1000 --specs gaussian:epsilon=1 \
          --learner z-learning
    """

    forecast: ForecastSettings = ForecastSettings(dynamics="pooled")
    specs: tuple[str, ...] = ()
    """Mechanisms whose releases train the controllers (default: a few that suit the scenario)."""
    participants: int | None = None
    """Participants to simulate, if a mechanism protects them (default: 4,000)."""
    days: int = 30
    """Days to simulate for each participant."""
    heterogeneity: float = 30.0
    """κ: a smaller value makes participants differ more."""
    releases: int = 5
    """Releases of each mechanism."""
    learner: str | None = None
    """A learner instead of the exact plan, such as z-learning."""
    steps: int | None = None
    """Its training steps (default: as tuned)."""
    action: str = "tilt"
    """Action mode: signals, price, tilt, policy, discrete, or a registered one."""
    seed: int = 0
    """Seed of the first release, and of the participants."""
    output: Path = Path("runs/regret")
    """Folder to write to."""

    def run(self) -> int:
        """Split the losses of plans on releases, and of a learner if one is asked for."""
        from dp_ensemble_env.agents import agent_names
        from dp_ensemble_env.envs import actions
        from dp_ensemble_env.experiments import deployment
        from dp_ensemble_env.privacy.participants import simulated
        from dp_ensemble_env.reporting.plots import plot_regrets  # needs matplotlib

        check_choice(self.action, "--action", actions.names())
        check_count(self.releases, "--releases")
        if self.learner is not None:
            check_choice(self.learner, "--learner", agent_names())
        model = self.load().model
        specs = self.specs or tuple(deployment.default_specs(model))
        needed = deployment.default_participants(specs)
        number = needed if self.participants is None else check_count(self.participants, "--participants", 0)
        if needed and not number:
            raise ValueError("--participants is 0, but a mechanism protects participants; simulate some.")
        check_writable(self.output, folder=True)
        rows: list[deployment.Regret] = []
        with Progress("splitting") as monitor, keeping(lambda: "nothing was written"):
            fleet = None
            if number:
                monitor.stage(f"simulating {number:,} participants")
                fleet = simulated(model, number, self.seed, heterogeneity=self.heterogeneity, days=self.days)
            monitor.stage("splitting", len(specs) * self.releases)
            for spec in specs:
                losses = []
                for seed in range(self.seed, self.seed + self.releases):
                    losses.append(self.split(model, spec, fleet, seed))
                    monitor.advance(len(rows) * self.releases + len(losses), spec)
                name = spec if self.learner is None else f"{self.learner} on {spec}"
                rows.append(deployment.mean_regret(name, losses))
            suffix = "" if self.settings.meter is None else "-private"
            monitor.stage("drawing")
            self.output.mkdir(parents=True, exist_ok=True)
            picture = plot_regrets(rows, self.output / f"regret{suffix}.png")
        note = (
            "Dollars per load below the optimum, split exactly; plans are deployed as tilts. Without data: the score "
            "of a plan computed from a public guess, ε = 0. ε is the cost of one release at δ = 1e-6 (the paper's "
            "mechanism: for h = 0.03). Computed from the true behaviour, so only for the owner of the data."
        )
        lines = zip(deployment.REGRET_HEADINGS, *(row.cells() for row in rows), strict=True)
        headings, *cells = zip(*(line for line in lines if self.learner or line[0] != "learning"), strict=True)
        table("Causes of the loss, in dollars per load", headings, cells, notes=(note,))
        write_json(self.output / f"regret{suffix}.json", {"regrets": [row.to_dict() for row in rows]})
        print(f"Picture: {picture}\nTable:   {self.output}/regret{suffix}.json")
        return 0

    def split(self, model: EnsembleModel, spec: str, fleet: Fleet | None, seed: int) -> Any:
        """Draw one release, from the participants where the mechanism takes them, and split the loss it led to."""
        from dp_ensemble_env.agents import make_agent
        from dp_ensemble_env.envs.ensemble import EnsembleEnv
        from dp_ensemble_env.experiments import deployment
        from dp_ensemble_env.scenarios.problem import draw_release

        release, sample, agent = draw_release(spec, model, seed, fleet=fleet), None, None
        if fleet is not None and not spec.startswith("dirichlet"):  # which is drawn from the true behaviour
            sample = fleet.remembered("sample", lambda: deployment.sample_matrix(fleet, model.guess))
        if self.learner is not None:
            private = EnsembleEnv(model.public(release), action=self.action)
            budget = {} if self.steps is None else {"steps": self.steps}
            agent = make_agent(self.learner, private, seed=seed, **budget)
        return deployment.split_regret(model, release, sample=sample, agent=agent, action=self.action)


def number(value: float) -> str:
    """Four digits, or the word for infinity."""
    return "inf" if math.isinf(value) else f"{value:.4g}"
