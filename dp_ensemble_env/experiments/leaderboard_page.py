"""The leaderboard's page: one figure, one table, three sentences; then the parts behind them.

Scores come as matrices (seeds, instances) by scenario, a cell of the private track as one instance. Every number is
computed from the rows that are there (`dp_ensemble_env.agents.statistics`); a line says how many of its cells are.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from dp_ensemble_env import scenarios
from dp_ensemble_env.agents import statistics
from dp_ensemble_env.control.policies import solve_standard
from dp_ensemble_env.control.returns import path_returns
from dp_ensemble_env.experiments import leaderboard, standings
from dp_ensemble_env.experiments.leaderboard import BOUNDS, CELLS, GUESS, OPEN, PRIVATE, STUDY, release_by, track_of
from dp_ensemble_env.experiments.runner import EPISODE_SEED, Cell, Row, Store
from dp_ensemble_env.experiments.standings import KNOWLEDGE, Scores, Table
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.reporting.score import start_values
from dp_ensemble_env.reporting.tables import number_text, plain
from dp_ensemble_env.tools.console import table
from dp_ensemble_env.tools.files import atomic_write

FloatArray = NDArray[np.float64]
#: Core seconds that the whole protocol may take.
BUDGET = 36_000
#: Scenarios that a rank correlation needs at least.
ENOUGH = 6
#: Of the performance profiles.
THRESHOLDS = (0, 50, 90, 97)
#: Where the axis of scores begins.
LEFT = -10
FIGURE = "images/leaderboard.png"
#: The page, with places for what is computed.
TEMPLATE = Path(__file__).with_name("leaderboard.md")
BOUND_NAMES = {"best-price": "best constant", "open-loop": "open loop", "blind": "memoryless or blind"}
MEASURES = ("feedback", "memory or shares", "data", "noise", "representation")


class Entry(NamedTuple):
    """What a line of the table is about."""

    agent: str
    track: str
    knows: str
    privacy: str | None
    action: str

    @classmethod
    def of(cls, cell: Cell) -> Entry:
        """Return the line of a cell."""
        apart = "," in cell.label or cell.data.endswith("(twin)")  # other action modes, other problems
        track = STUDY if apart else track_of(cell)
        return cls(cell.label or cell.agent, track, cell.knows, cell.privacy, cell.action)

    @property
    def title(self) -> str:
        """The agent and its mechanism."""
        if self.privacy == GUESS:
            return f"{self.agent} on the public guess"
        return self.agent if self.privacy is None else f"{self.agent} by {self.privacy.partition(':')[0]}"

    @property
    def source(self) -> str:
        """The agent, and what it was made with."""
        terms = (self.privacy or "").partition("epsilon=")[2]
        epsilon = f", ε = {terms.partition(',')[0]}" if terms else ""
        truth = self.track == PRIVATE and self.knows == "the truth"
        return f"{self.title}{' on the truth' if truth else epsilon}"


class Board:
    """Rows by line of the table and scenario, and the cells that there should be."""

    def __init__(self, rows: Sequence[Row], planned: Sequence[Cell] = ()) -> None:
        self.rows = [row for row in rows if row.error is None]
        if not self.rows:
            raise ValueError("there are no finished rows to show; compute some first.")
        self.planned = planned or [row.cell for row in self.rows]
        self.lines: dict[Entry, dict[str, list[Row]]] = {}
        for row in sorted(self.rows, key=lambda row: row.cell.seed):
            self.lines.setdefault(Entry.of(row.cell), {}).setdefault(row.cell.data, []).append(row)
        self.asked = Counter(map(Entry.of, self.planned))
        names = dict.fromkeys(cell.data for cell in self.planned)
        self.scenarios = [name for name in names if not name.endswith(" (twin)")]

    def find(self, agent: str, track: str, privacy: str | None = None, action: str | None = None) -> Entry | None:
        """Return a line by its parts."""
        fits = (entry for entry in self.lines if (entry.agent, entry.track, entry.privacy) == (agent, track, privacy))
        return next((entry for entry in fits if action in (None, entry.action)), None)

    def by_data(self, entry: Entry | None) -> dict[str, list[Row]]:
        """Return the rows of a line by scenario, twins among them."""
        return {} if entry is None else self.lines.get(entry, {})

    def scores(self, entry: Entry | None) -> Scores:
        """Return the matrices of a line by scenario; twins stand apart."""
        matrices, rows = {}, self.by_data(entry)
        for name in (name for name in self.scenarios if name in rows):
            scores = [row.scores for row in rows[name]]
            matrices[name] = np.array([sum(scores, [])] if entry and entry.track == PRIVATE else scores)
        return matrices

    def all(self, entry: Entry) -> list[Row]:
        """Return all rows of a line."""
        return sum(self.by_data(entry).values(), [])

    def whole(self, entry: Entry) -> bool:
        """Tell whether no cell of a line is missing."""
        return len(self.all(entry)) >= self.asked[entry]

    def ranked(self) -> list[Entry]:
        """Return the lines by what was known, then those of all scenarios, then by score; no bounds and no studies."""
        kept = [entry for entry in self.lines if entry.track in (OPEN, PRIVATE) and self.scores(entry)]

        def place(entry: Entry) -> tuple[Any, ...]:
            score = statistics.interval(self.scores(entry)).value
            few = len(self.scores(entry)) < len(self.scenarios)
            return KNOWLEDGE.index(entry.knows), not self.whole(entry), few, -score

        return sorted(kept, key=place)


# ------------------------------------------------------------------ tables
def overall(board: Board) -> Table:
    """One line for each agent, track and source."""
    lines, before = [], ""
    for entry in board.ranked():
        rows, knows = board.all(entry), "" if entry.knows == before else entry.knows
        epsilon = standings.show_epsilon(max(row.epsilon for row in rows))
        cells = f"{len(rows)} of {max(len(rows), board.asked[entry])}"
        if (played := len(board.scores(entry))) < len(board.scenarios):
            cells += f" ({played} scenario{'s' * (played > 1)})"
        cpu = np.mean([row.compute.get("cpu_seconds", 0.0) for row in rows])
        score = str(statistics.interval(board.scores(entry)))
        lines.append([knows, entry.title, entry.track, score, epsilon, cells, f"{cpu:,.1f}"])
        before = entry.knows
    return ["knew", "agent", "track", "score", "ε", "cells", "CPU s per cell"], lines


class Split(NamedTuple):
    """What is missing to 100, in its three parts, over the cells that have all three scores."""

    learning: statistics.Interval
    privacy: statistics.Interval
    data: statistics.Interval
    cells: int


def split(board: Board, agent: str) -> Split | None:
    """Divide an agent's distance to the optimum; None where a part is missing."""
    planned = agent == "standard"
    sides = [(agent, None), (agent, release_by("adaptive")), ("without-data", None) if planned else (agent, GUESS)]
    lines = [board.by_data(board.find(who, PRIVATE, spec)) for who, spec in sides]
    matrices: list[FloatArray] = []
    for data in board.scenarios:
        parts = [{row.cell.seed: row.scores[0] for row in rows.get(data, [])} for rows in lines]
        if seeds := sorted(set.intersection(*map(set, parts))):
            matrices.append(np.array([[part[seed] for seed in seeds] for part in parts]))
    if not matrices:
        return None

    def parts_of(columns: Sequence[FloatArray]) -> FloatArray:
        truth, release, guess = stats.trim_mean(np.concatenate(columns, axis=1), 0.25, axis=1)
        return np.array([100.0 - truth, truth - release, release - guess])

    rng = np.random.default_rng(0)
    draws = np.array([
        parts_of([cells[:, rng.integers(cells.shape[1], size=cells.shape[1])] for cells in matrices])
        for _ in range(statistics.RESAMPLES)
    ])  # fmt: skip
    three = [statistics.around(float(value), draws[:, i]) for i, value in enumerate(parts_of(matrices))]
    return Split(three[0], three[1], three[2], sum(cells.shape[1] for cells in matrices))


def telling(board: Board) -> list[Entry]:
    """Return the lines of the table whose scores are not 0 or 100 by definition."""
    given = [("uncontrolled", "nothing"), ("standard", "the truth")]
    return [entry for entry in board.ranked() if (entry.agent, entry.knows) not in given]


def by_scenario(board: Board, track: str) -> Table:
    """One line for each scenario, one column for each line of a track that played all of them."""
    columns = {entry: board.scores(entry) for entry in telling(board) if entry.track == track}
    columns = {entry: of for entry, of in columns.items() if len(of) == len(board.scenarios)}
    mean = statistics.interquartile_mean
    rows = [[name, *(f"{mean(of[name]):.1f}" for of in columns.values())] for name in board.scenarios]
    return ["scenario", *(entry.source for entry in columns)], rows


def profiles(board: Board) -> Table:
    """Return the per cent of all runs on all instances above each threshold."""
    rows = [[one.source, one.track, *standings.profile_text(board.scores(one), THRESHOLDS)] for one in telling(board)]
    return ["agent", "track", *(f"> {threshold}" for threshold in THRESHOLDS)], rows


def improvement(board: Board) -> Table:
    """How probably PPO scores above each other line of its track, on the scenarios that both have."""
    rows = []
    for entry in board.ranked():
        ppo = board.scores(board.find("ppo", entry.track, None if entry.track == OPEN else release_by("adaptive")))
        other = board.scores(entry)
        common = [name for name in ppo if name in other and ppo[name].shape[1] == other[name].shape[1]]
        if entry.agent != "ppo" and common:
            chance = statistics.probability_of_improvement({n: ppo[n] for n in common}, {n: other[n] for n in common})
            rows.append([entry.source, entry.track, standings.chance_text(chance), str(len(common))])
    return ["against", "track", "PPO scores above", "scenarios"], rows


def curves(board: Board) -> Table:
    """Scores along the way, where an agent is trained: the median over the cells of a line."""
    rows = []
    for entry in board.ranked():
        several = [row.curve for row in board.all(entry) if len(row.curve) > 2]
        if several:
            picks = sorted({round(x) for x in np.linspace(0, min(map(len, several)) - 1, 6)})
            said = [f"{round(np.median([curve[i][1] for curve in several]))} at {several[0][i][0]:,}" for i in picks]
            rows.append([entry.source, entry.track, "; ".join(said)])
    return ["agent", "track", "median score at steps"], rows


# ------------------------------------------------------------------ why a task is hard
def noise(model: EnsembleModel, episodes: int = 2000, seed: int = 0) -> float:
    """Return the standard deviation of the return at the optimum, in points of the score."""
    rng, horizon = np.random.default_rng(seed), model.horizon
    contexts = np.zeros((episodes, horizon + 1), np.int64)
    if model.context is not None:
        chances = np.broadcast_to(model.context.start, (episodes, model.n_contexts))
        for t in range(horizon + 1):
            passed = (np.cumsum(chances, axis=1) < rng.random((episodes, 1))).sum(axis=1)
            contexts[:, t] = passed.clip(0, model.n_contexts - 1)
            if t < horizon:
                chances = model.context.moves(t)[contexts[:, t]]
    states = rng.choice(model.n_states, episodes, p=model.initial)
    start = np.tile(model.initial, (episodes, 1)) if model.spread_start else np.eye(model.n_states)[states]
    policy = solve_standard(model).policy
    low, high = start_values(model)
    return float(100.0 * path_returns(model, policy, contexts, start).std() / (high - low))


def noises(names: Sequence[str]) -> dict[str, float]:
    """Return the mean noise of the test instances of the private track, by scenario."""
    models = {name: [scenarios.make(name, instance=i, split="test") for i in range(CELLS)] for name in names}
    return {name: round(float(np.mean(list(map(noise, several)))), 3) for name, several in models.items()}


def correlation(measure: Sequence[float], shortfall: Sequence[float]) -> str:
    """Return Spearman's rank correlation with its 95 % interval (Fisher's transformation), or why there is none."""
    pairs = np.array([pair for pair in zip(measure, shortfall, strict=True) if np.isfinite(pair).all()])
    if len(pairs) < ENOUGH or len(set(pairs[:, 0])) == 1:
        return "too few to say"
    rho = float(stats.spearmanr(pairs[:, 0], pairs[:, 1]).statistic)
    width = 1.96 * math.sqrt((1.0 + rho**2 / 2.0) / (len(pairs) - 3.0))
    low, high = (math.tanh(math.atanh(min(max(rho, -0.999), 0.999)) + side * width) for side in (-1, 1))
    return f"{rho:.2f} [{low:.2f}, {high:.2f}], {len(pairs)} scenarios"


def hard(board: Board, noises: Mapping[str, float]) -> Table:
    """One line for each scenario with what makes it hard in points, and the correlations with PPO's shortfall."""

    def short(agent: str, track: str) -> list[float]:
        scores = board.scores(board.find(agent, track))
        few = {name: matrix[:, :CELLS] for name, matrix in scores.items()}
        return [100.0 - statistics.interquartile_mean(few[n]) if n in few else math.nan for n in board.scenarios]

    columns = [short("open-loop", BOUNDS), short("blind", BOUNDS), short("without-data", OPEN)]
    columns.append([noises.get(name, math.nan) for name in board.scenarios])
    ppo, price = (board.scores(board.find(*what)) for what in (("ppo", OPEN), ("ppo, price", STUDY)))
    gains = {n: statistics.interval(ppo[n][:3]).value - statistics.interval(price[n]).value for n in price if n in ppo}
    columns.append([gains.get(name, math.nan) for name in board.scenarios])
    shortfall = [100.0 - statistics.interval(ppo[name]).value if name in ppo else math.nan for name in board.scenarios]
    shown = zip(board.scenarios, *columns, shortfall, strict=True)
    rows = [[name, *(number_text(value, 1) for value in values)] for name, *values in shown]
    said = [correlation(column, shortfall) for column in columns]
    return ["scenario", *MEASURES, "PPO's shortfall"], [*rows, ["Spearman's ρ with the shortfall", *said, ""]]


def _first(board: Board, data: str, agent: str, track: str, action: str | None = None) -> str:
    rows = board.by_data(board.find(agent, track, None, action)).get(data, [])[:3]
    return str(statistics.interval([row.scores for row in rows])) if rows else "–"


def by_mode(board: Board) -> Table:
    """Scores of PPO by action mode, open track, first three seeds."""
    modes = {"price": ("ppo, price", STUDY), "signals": ("ppo", OPEN), "tilt": ("ppo, tilt", STUDY)}
    rows = [[name, *(_first(board, name, *modes[mode], mode) for mode in modes)] for name in leaderboard.STUDIED]
    return ["scenario", *modes], rows


def memory(board: Board) -> Table:
    """Show what remembering is worth where part of the context is hidden, beside a twin that hides nothing."""
    problems = [pair for name in leaderboard.TWINS for pair in ((name, OPEN), (f"{name} (twin)", STUDY))]
    rows = [[data, *(_first(board, data, agent, track) for agent in ("ppo", "recurrent-ppo"))]
            for data, track in problems]  # fmt: skip
    return ["problem", "PPO", "RecurrentPPO"], rows


# ------------------------------------------------------------------ the page
def sentences(board: Board) -> list[str]:
    """Say what learning costs, what privacy costs and what data are worth: computed, or why they cannot be."""
    plan, ppo = split(board, "standard"), split(board, "ppo")
    said = ["**Learning**: PPO has not yet run on the truth, on a release and on the guess of one instance."]
    if ppo is not None:
        said = [
            f"**Learning** costs {ppo.learning} points: the distance to the optimum of a PPO trained on the true "
            f"behaviour of the instance that it plays ({ppo.cells} cells)."
        ]
    both = [(who, of) for who, of in (("the planner", plan), ("PPO", ppo)) if of is not None]
    if both:
        cost = " and ".join(f"{of.privacy} points for {who}" for who, of in both)
        worth = " and ".join(f"{of.data} points to {who}" for who, of in both)
        said.append(f"**Privacy** at ε = 1 costs {cost}: a release by `adaptive` compared with the truth.")
        said.append(f"**Data** are worth {worth}: the same release compared with the public guess.")
    return said


def missing(board: Board) -> str:
    """Say how many cells are missing, by agent."""
    there = {row.cell.key for row in board.rows}
    gone = Counter(Entry.of(cell).agent for cell in board.planned if cell.key not in there)
    if not gone:
        return "No cell of the protocol is missing."
    agents = ", ".join(f"`{agent}` {count}" for agent, count in gone.most_common())
    return (
        f"**{gone.total():,} of {len(board.planned):,} cells are missing**, so this page is incomplete: {agents}. "
        "Compute them with `dp-ensemble leaderboard`."
    )


def figure(board: Board, path: Path) -> Path:
    """Draw scores by agent on both tracks with their intervals, and lines to compare with; imports matplotlib."""
    from dp_ensemble_env.reporting.plots import BLUE, GREY, ORANGE, look, save, subplots

    shown: list[Entry | str] = []  # from above: what was known, and below it the agents that knew it
    for entry in board.ranked():
        shown += [entry] if entry.knows in shown else [entry.knows, entry]
    shown.reverse()
    with look():
        picture, axes = subplots(figsize=(5.2, 2.0 + 0.19 * len(shown)))  # letters that a telephone can show
        for y, entry in ((y, entry) for y, entry in enumerate(shown) if isinstance(entry, Entry)):
            value, low, high = statistics.interval(board.scores(entry))
            color, mark = (BLUE, "o") if entry.track == PRIVATE else (ORANGE, "s")
            if high < LEFT:
                axes.text(LEFT + 1, y, f"← {value:,.0f}", va="center", color=color, size=7)
                continue
            axes.plot([low, high], [y, y], color=color, lw=2)
            axes.plot(value, y, mark, color=color, mfc=color if board.whole(entry) else "white", ms=4.5)
        place: dict[str, Any] = {"rotation": 90, "ha": "center", "va": "bottom", "size": 6.5}
        for x, names in lines(board).items():
            axes.axvline(x, color=GREY, ls="--", lw=1, zorder=0)
            axes.text(x, len(shown) - 0.2, f"{names}: {x:.0f}", color=GREY, **place)
        labels = [f"knew {row}:" if isinstance(row, str) else row.source for row in shown]
        axes.set(yticks=range(len(shown)), yticklabels=labels, xlim=(LEFT, 103), ylim=(-0.7, len(shown) - 0.3))
        for label, row in zip(axes.get_yticklabels(), shown, strict=True):
            label.set_fontweight("bold" if isinstance(row, str) else "normal")
        axes.set_xticks(range(0, 101, 20))
        said = "score: 0 = uncontrolled, 100 = optimum; with 95 % intervals\nsquare: open track, circle: private"
        cut = f"hollow: cells are missing; the axis is cut at −{-LEFT}, arrows: lower scores"
        axes.set_xlabel(f"{said}\n{cut}", loc="right")
        save(picture, path, dpi=150)
    return path


def lines(board: Board) -> dict[float, str]:
    """Return the names of the scores to compare with, by place; those less than a point apart share one."""
    labels = {100.0: "optimum"}
    names = {("without-data", track): f"without data ({track})" for track in (OPEN, PRIVATE)}
    names |= {(agent, BOUNDS): name for agent, name in BOUND_NAMES.items()}
    for (agent, track), name in names.items():
        if scores := board.scores(board.find(agent, track)):
            value = statistics.interval(scores).value
            near = next((place for place in labels if abs(place - value) < 1.0), value)
            labels[near] = f"{labels[near]}, {name}" if near in labels else name
    return labels


def show(board: Board) -> None:
    """Print the table and the sentences."""
    headings, rows = overall(board)
    table("Leaderboard", headings, rows, keep=3, notes=[words.replace("**", "") for words in sentences(board)])


def page(board: Board, content: Mapping[str, Any]) -> str:
    """Write the page of the documentation, in Markdown."""
    spent = sum(row.compute.get("cpu_seconds", 0.0) for row in board.rows)
    software = ", ".join(f"{name} {version}" for name, version in content["versions"].items())
    tables = {track: by_scenario(board, track) for track in (OPEN, PRIVATE)}
    tables |= {make.__name__: make(board) for make in (overall, by_mode, memory, profiles, improvement, curves)}
    tables["hard"] = hard(board, content.get("noise", {}))
    words = {"overall": 3, "profiles": 2, "improvement": 2, "curves": 3}
    texts = {
        name: standings.markdown(*made, words=words.get(name, 1)).strip() if made[1] else "None yet."
        for name, made in tables.items()
    }
    colophon = (
        f"`{content['command']}` with {software}. SHA-256 of all rows: `{content['digest'][:16]}…`. All rows: "
        "`experiments/leaderboard.json` in the package."
    )
    return TEMPLATE.read_text(encoding="utf-8").format(
        figure=FIGURE,
        sentences="\n".join(f"- {words}" for words in sentences(board)),
        missing=standings.filled(missing(board)),
        compute=f"{spent:,.0f} core-seconds for {len(board.rows):,} rows; the limit is {BUDGET:,}.",
        colophon=standings.filled(colophon),
        **texts,
    )


def write_page(path: Path, board: Board, content: Mapping[str, Any], store: Store | None = None) -> None:
    """Write the page, its figure and the agents that a store holds beside it."""
    figure(board, path.parent / FIGURE)
    if store is not None:
        write_agents(path.parent / "agents", board, store)
    with atomic_write(path) as stream:
        stream.write(page(board, content))


# ------------------------------------------------------------------ trained agents
def card(row: Row, policy: bytes) -> dict[str, Any]:
    """Return the card of a trained agent: what it was trained on, what it scores, and the command that shows it."""
    cell, one = row.cell, track_of(row.cell) == PRIVATE
    source = "open" if not one else "truth" if cell.privacy is None else "release"
    name = f"{cell.agent}-{cell.data}-{source}"
    command = (
        f"dp-ensemble evaluate docs/agents/{name}.safetensors --scenario {cell.data} --action {cell.action} "
        f"--split test --episodes {cell.episodes} --seed {EPISODE_SEED}{' --instances 1' * one}"
    )
    return {"name": name, "agent": cell.agent, "scenario": cell.data, "trained on": source, "privacy": cell.privacy,
            "epsilon": plain(row.epsilon), "score": round(statistics.interquartile_mean(row.scores), 2),
            "row": row.digest, "sha256": hashlib.sha256(policy).hexdigest(), "command": command}  # fmt: skip


def write_agents(folder: Path, board: Board, store: Store) -> None:
    """Write the policies that a store holds of the board's rows, each with its card, and the page of all cards."""
    for row in board.rows:
        if store.policy(row.cell).exists():
            policy = store.policy(row.cell).read_bytes()
            told = card(row, policy)
            for suffix, written in ((".safetensors", policy), (".json", (json.dumps(told, indent=1) + "\n").encode())):
                with atomic_write(folder / f"{told['name']}{suffix}", "wb") as stream:
                    stream.write(written)
    cards = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    if not cards:
        return
    rows = []
    for one in cards:
        epsilon = standings.show_epsilon(one["epsilon"] or math.inf)
        link, digest = f"[`{one['name']}`]({one['name']}.safetensors)", f"`{one['sha256'][:12]}…`"
        rows.append([link, one["privacy"] or "none", epsilon, f"{one['score']:.2f}", digest])
    made = standings.markdown(["agent", "privacy", "ε", "score", "SHA-256"], rows, words=2)
    text = TEMPLATE.with_name("trained_agents.md").read_text(encoding="utf-8")
    with atomic_write(folder / "index.md") as stream:
        stream.write(text.format(agents=made.strip(), command=cards[0]["command"]))
