"""The demonstration: what a plan loses on one scenario when every participant is protected.

``make demo`` runs it. Three plans, a PPO beside the private one, a line at the best open-loop plan, and one page;
cells that are done are kept. Every sentence is made from the numbers of the run.
"""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env import scenarios
from dp_ensemble_env.agents import make_agent
from dp_ensemble_env.agents.base import Agent
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.experiments.backends import Place
from dp_ensemble_env.experiments.compare import AgentSpec
from dp_ensemble_env.experiments.probes import Prober
from dp_ensemble_env.experiments.runner import Cell, Row, Store, Supplies, results, run, scenario_problem, write_results
from dp_ensemble_env.experiments.standings import show_epsilon
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy.ledger import PrivacyLedger
from dp_ensemble_env.privacy.release import Release
from dp_ensemble_env.privacy.statement import PrivacyCard
from dp_ensemble_env.reporting.charts import Chart, Series, hour_ticks, hours
from dp_ensemble_env.reporting.page import Page
from dp_ensemble_env.scenarios.problem import draw_release
from dp_ensemble_env.tools.console import Progress, paragraph, table

SCENARIO = "call"
PRIVACY = "adaptive:epsilon=1,participants=1000"
#: 15 rollouts of 8 × 256 steps: what Stable-Baselines3 makes of 30,000.
PPO = "ppo:action=signals,steps=30720,n_envs=8,n_steps=256"
COMMAND = "make demo"
LEARNED = "private PPO"
#: What is shown, in the order of the bars: name, agent, and whether it sees the release. PPO is a mark on a bar.
SHOWN = (
    ("without data", "without-data", False),
    ("private plan", "standard", True),
    (LEARNED, PPO, True),
    ("all data", "standard", False),
)


def cells() -> dict[str, Cell]:
    """Return the cells by the names that are shown."""
    made, problem = {}, scenario_problem(SCENARIO)
    for name, agent, private in SHOWN:
        spec = AgentSpec.parse(agent)
        action, privacy = spec.action or "tilt", PRIVACY if private else None
        about: dict[str, Any] = {"agent": spec.name, "action": action, **spec.made(SCENARIO, action, "mean-field")}
        made[name] = Cell(problem=problem, privacy=privacy, data=SCENARIO, label=name, **about)
    return made


def demo(folder: Path) -> tuple[Path, list[str]]:
    """Compute what is missing, write the page, print the table; return the page and the sentences."""
    truth, planned = scenarios.make(SCENARIO), cells()
    with Progress("planning") as monitor:

        def news(step: int, steps: int, score: float) -> None:
            monitor.stage(f"PPO learns on the release, score {score:.0f}", steps)
            monitor.advance(step)

        finished = run(planned.values(), Store(folder), Place(), monitor, Supplies(news=news))
        rows = {row.cell.label: row for row in finished}
        for name in planned:
            if (error := rows[name].error) is not None:
                raise ValueError(f"{name} failed: {error['message']}")
        monitor.stage("searching the best open-loop plan")
        open_loop = Prober(truth).open_loop()
        monitor.stage("drawing")
        release = draw_release(PRIVACY, truth, planned["private plan"].seed)
        ledger = PrivacyLedger()
        ledger.record(release.event)
        card, said = ledger.statement(), sentences(rows, open_loop)
        content = results(rows.values(), COMMAND)
        write_results(folder / "results.json", content)
        card.save(folder / "release.json")
        page = write_page(folder, said, bars(rows, open_loop), day(truth, release), card, content)
    show(rows, open_loop, card)
    return page, said


# ------------------------------------------------------------------ words
def sentences(rows: dict[str, Row], open_loop: float) -> list[str]:
    """Say in three sentences what came out."""
    without, plan, ppo, everything = (rows[name].scores[0] for name, *_ in SHOWN)
    epsilon, steps = rows["private plan"].epsilon, rows[LEARNED].compute["steps"]
    return [
        f"With a release that protects each participant at ε = {epsilon:.3g}, the exact plan scores {plan:.1f} on the "
        f"loads' real behaviour, {_difference(plan, everything)} the plan with all data.",
        f"Without data a plan scores {without:.1f}, {_difference(without, plan)} the private one; the best schedule "
        f"by time alone (open loop) scores {open_loop:.1f}.",
        f"PPO, trained for {steps:,} steps on the same release, scores {ppo:.1f}, {_difference(ppo, plan)} the exact "
        "plan.",
    ]


def _difference(value: float, other: float) -> str:
    gap = round(value, 1) - round(other, 1)
    return "as much as" if gap == 0 else f"{abs(gap):.1f} points {'above' if gap > 0 else 'below'}"


def show(rows: dict[str, Row], open_loop: float, card: PrivacyCard) -> None:
    """Print the scores and the privacy."""
    lines = [[name, f"{row.scores[0]:.1f}", show_epsilon(row.epsilon)] for name, row in rows.items()]
    lines.append(["open loop (a bound for schedules)", f"{open_loop:.1f}", "∞"])
    note = "Score on the loads' real behaviour: 0 = nobody interferes, 100 = optimum."
    table(title(), ("", "score", "ε"), lines, notes=[note])
    paragraph(str(card))


def title() -> str:
    """Return the scenario and the question."""
    return f"{scenarios.card(SCENARIO).title}: how good is a plan that protects every participant?"


# ------------------------------------------------------------------ the page
def day(truth: EnsembleModel, release: Release) -> Chart:
    """Draw the first day of the environment on which the lines are called: power under three plans."""
    plain = EnsembleEnv(truth, action="tilt")
    assert truth.context is not None
    called = [name.startswith("event") for name in truth.context.names]
    nobody = make_agent("uncontrolled", plain)
    days = ((seed, _played(nobody, plain, seed)[1]) for seed in count())
    seed, contexts = next((seed, path) for seed, path in days if any(called[w] for w in path))
    private = make_agent("standard", EnsembleEnv(truth, action="tilt", privacy=release))
    players = (
        ("nobody interferes", nobody, "grey", ""),
        ("without data", make_agent("without-data", plain), "orange", "2 3"),
        ("private plan", private, "blue", ""),
        ("all data", make_agent("standard", plain), "green", "6 4"),
    )
    clock = hours(truth)
    lines = [Series(name, clock.tolist(), _played(agent, plain, seed)[0].tolist(), color=color, dash=dash)
             for name, agent, color, dash in players]  # fmt: skip
    ends = np.flatnonzero(np.diff([False, *(called[w] for w in contexts), False]))
    spans = [(float(clock[a] - truth.step_hours), float(clock[b - 1])) for a, b in ends.reshape(-1, 2)]
    about: dict[str, Any] = {"clock": True, "unit": " kW", "windows": spans, "x_ticks": hour_ticks(clock)[::2]}
    return Chart("A day with a call", "hour of the day", "mean power of a load, kW", lines, **about)


def _played(agent: Agent, env: EnsembleEnv, seed: int) -> tuple[NDArray[np.float64], list[int]]:
    """Play one day, and return the mean power of a load and the contexts."""
    state: Any = None
    observation, info = env.reset(seed=seed)
    power, contexts = [info["power_kw"]], [int(info["context"])]
    for _ in range(env.model.horizon):
        action, state = agent.predict(observation, state)
        observation, _, _, _, info = env.step(action)
        power.append(info["power_kw"])
        contexts.append(int(info["context"]))
    return np.array(power), contexts


def bars(rows: dict[str, Row], open_loop: float) -> Chart:
    """Draw the plans' scores as bars, PPO's as a mark on the bar of the private plan, and open loop as a line."""
    plans = {name: row for name, row in rows.items() if name != LEARNED}
    scores = [row.scores[0] for row in plans.values()]
    notes = [f"{score:.1f}, ε = {show_epsilon(row.epsilon)}" for score, row in zip(scores, plans.values(), strict=True)]
    learned, place = rows[LEARNED].scores[0], list(plans).index("private plan")
    series = [
        Series("exact plan", scores, range(len(plans)), line=False, bars=True, notes=notes),
        Series(
            f"PPO on the same release, one run: {learned:.1f}",
            [learned],
            [place],
            color="orange",
            line=False,
            dots=True,
        ),
    ]
    marks = [(open_loop, f"open loop {open_loop:.1f}")]
    axis = "score (0 = nobody interferes, 100 = optimum)"
    return Chart("Score on the real behaviour", axis, "", series, rows=list(plans), x_name="score", marks=marks)


def write_page(
    folder: Path, said: list[str], scores: Chart, event: Chart, card: PrivacyCard, content: dict[str, Any]
) -> Path:
    """Write the page, and its pictures beside it; importing matplotlib."""
    from dp_ensemble_env.reporting.plots import draw_chart

    page = Page(title())
    page.takeaways(said, scores, draw_chart(scores, folder / "scores.png"))
    page.heading("The scenario")
    page.text(scenarios.card(SCENARIO).story)
    page.heading("A day with a call")
    page.chart(event, draw_chart(event, folder / "day.png"), "The first day with a call. The private plan is "
               "computed from the release and plays on the real behaviour.")  # fmt: skip
    page.heading("Privacy card")
    page.text(card.line)
    page.definitions(card.entries())
    page.colophon(content["command"], content["versions"], f"Digest of all rows: `{content['digest'][:16]}…`.")
    return page.write(folder / "demo.html")


def main() -> int:
    """Run the demonstration; its sentences come last."""
    try:
        page, said = demo(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/demo"))
    except KeyboardInterrupt:
        print("interrupted; finished cells are kept, the same command does the rest.", file=sys.stderr)
        return 130
    print(f"\nPage: {page}\n")
    for sentence in said:
        paragraph(sentence)
    return 0


if __name__ == "__main__":
    sys.exit(main())
