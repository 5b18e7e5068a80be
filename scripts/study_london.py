"""Compare models of how households answer a price: ``python scripts/study_london.py HALFHOURLY TRANSITIONS [FOLDER]``.

The files are aggregates of the Low Carbon London trial (2013): half-hourly means of the households on a dynamic and on
a flat tariff, and counts of moves between levels of consumption at the normal price. The response is the log of dynamic
over flat mean, less a regression on half hours far from other prices: harmonics of the day, also for days of rest, some
by season and by the flat group's log anomaly. A model gives the shape of the response; its amplitude is fitted on half
of the episodes and scored on the others. FOLDER (``docs``) gets the figures and the picture.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dp_ensemble_env.control.lsmdp import occupancy, solve
from dp_ensemble_env.reporting.plots import BLACK, BLUE, RED, look, save, subplots

DAY, FAR, SLOTS, DRAWS, SMALL = 48, 24, 365 * 48, 2000, 1e-3
DATE, SLOT = np.divmod(np.arange(SLOTS), DAY)
REST = ((DATE + 1) % 7 >= 5) | np.isin(DATE, (0, 87, 90, 125, 146, 237, 358, 359))  # 1 January 2013 was a Tuesday
NORMAL, HIGH, LOW = 11.76, 67.20, 3.99  # pence per kWh
AHEAD, ALONE = "tilt with foresight, label", "tilt without foresight, label"
NAMES = {AHEAD: "predicted by the tilt with foresight", ALONE: "predicted by the tilt without foresight"}
Array = np.ndarray[Any, Any]
Year = tuple[Array, Array, Array, list[Array]]  # by half hour: label (1 high, −1 low), response, clean; then episodes


def read_year(path: Path) -> Year:
    """Read the half hours and subtract what the regression expects at the normal price."""
    start, price, dynamic, fixed = np.loadtxt(path, str, delimiter=",", skiprows=1, usecols=(0, 1, 3, 6), unpack=True)
    when = ((start.astype("M8[m]") - np.datetime64("2013-01-01")) // np.timedelta64(30, "m")).astype(int)
    label, ratio, flat = np.zeros(SLOTS, int), np.full(SLOTS, np.nan), np.full(SLOTS, np.nan)
    label[when], flat[when] = (price == "H") * 1 - (price == "L"), np.log(fixed.astype(float))
    ratio[when] = np.log(dynamic.astype(float)) - flat[when]
    out, priced = np.isnan(ratio) | np.isin(DATE, (0, 89, 299)) | (DATE >= 357), np.flatnonzero(label)
    clean = ~out & (np.abs(np.arange(SLOTS)[:, None] - priced).min(1) > FAR)
    angle, season, anomaly = 2 * np.pi * SLOT / DAY, 2 * np.pi * np.arange(SLOTS) / SLOTS, np.zeros(SLOTS)
    S = np.column_stack([np.ones(SLOTS), *(f(k * angle) for k in range(1, 13) for f in (np.cos, np.sin))])
    for cell in ((SLOT == s) & (rest == REST) for s in range(DAY) for rest in (False, True)):
        anomaly[cell] = np.nan_to_num(flat[cell] - np.nanmean(flat[cell]))
    by = [*(f(k * season) for k in (1, 2) for f in (np.cos, np.sin)), anomaly]
    X, response = np.hstack([S, S * REST[:, None], *(S[:, :9] * b[:, None] for b in by)]), np.full(SLOTS, np.nan)
    for fold in range(-1, 10):  # every half hour from all clean ones, then each clean one from other days
        L = X[learn := clean & (DATE % 10 != fold)]
        weights = np.linalg.solve(L.T @ L + 3.0 * np.eye(L.shape[1]), L.T @ ratio[learn])
        told = clean & (DATE % 10 == fold) if fold >= 0 else np.ones(SLOTS, bool)
        response[told] = ratio[told] - X[told] @ weights
    runs = np.split(priced, np.flatnonzero(np.diff(priced) >= FAR) + 1)
    return label, response, clean, [r for r in runs if not out[max(r[0] - FAR, 0) : r[-1] + FAR + 1].any()]


def read_tilts(path: Path, episodes: list[Array]) -> tuple[Callable[[Array], Array], Callable[[Array], Array]]:
    """Return the log responses to `push` nats per kWh, with and without foresight, from moves at the normal price."""
    counts, kwh = (np.load(path)[key].astype(float) for key in ("tou_normal", "tou_kwh"))
    counts += 178.0 * counts.sum((0, 1)) / counts.sum((0, 1, 3))[:, None]  # each row shrunk to the pooled one
    moves = (counts / counts.sum(-1, keepdims=True))[SLOT // 2, REST.astype(int)]
    share = occupancy(moves, np.full(len(kwh), 1.0 / len(kwh)))[:SLOTS]

    def ahead(push: Array) -> Array:  # the linearly-solvable MDP over each episode and 12 hours on both sides
        response = np.zeros(SLOTS)
        for slots in (np.arange(e[0] - FAR, e[-1] + FAR + 1) for e in episodes):
            policy = solve(np.log(moves[slots[:-1]]), push[slots][:, None] * kwh, 1.0).policy
            response[slots] = np.log(occupancy(policy, share[slots[0]]) @ kwh / (share[slots] @ kwh))
        return response

    def alone(push: Array) -> Array:  # each half hour's shares tilted by themselves
        tilted = share * np.exp(push[:, None] * kwh)
        return np.asarray(np.log(tilted @ kwh / tilted.sum(1) / (share @ kwh)))

    return ahead, alone


def estimate(top: Array, bottom: Array) -> list[float]:
    """Return a ratio of sums over episodes with its 95 % bootstrap interval."""
    draws = np.random.default_rng(1).integers(len(top), size=(DRAWS, len(top)))
    ends = np.percentile(top[draws].sum(1) / bottom[draws].sum(1), [2.5, 97.5])
    return [float(round(v, 4)) for v in (top.sum() / bottom.sum(), *ends)]


def gain(response: Array, episodes: list[Array], shape: Array) -> tuple[Array, Array]:
    """Return by how much each held-out episode's squared error falls on average, and the amplitudes."""
    A = np.array([shape[:, e] @ shape[:, e].T for e in episodes])
    b = np.array([shape[:, e] @ response[e] for e in episodes])
    rng, gains, amplitudes = np.random.default_rng(0), np.zeros(len(A)), []
    for order in (rng.permutation(len(A)) for _ in range(10)):
        for test in (np.arange(len(A)) < len(A) // 2, np.arange(len(A)) >= len(A) // 2):
            learn, score = order[~test], order[test]
            amplitudes.append(np.linalg.solve(A[learn].sum(0), b[learn].sum(0)))
            gains[score] += (2 * b[score] - A[score] @ amplitudes[-1]) @ amplitudes[-1] / 10
    return gains, np.mean(amplitudes, 0)


def study(year: Year, path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the figures of the page, and the responses that the picture shows."""
    (label, response, clean, episodes), (ahead, alone) = year, read_tilts(path, year[3])
    price = np.select([label > 0, label < 0], [HIGH, LOW], NORMAL)
    shapes = {  # the response to first order, one row a parameter
        "constant per cent": -1.0 * label[None],
        "constant elasticity": -np.log(price / NORMAL)[None],
        "tilt with foresight, money": ahead(SMALL * (NORMAL - price) / NORMAL)[None] / SMALL,
        AHEAD: ahead(-SMALL * label)[None] / SMALL,
        ALONE: alone(-SMALL * label)[None] / SMALL,
        "eight parameters": 1.0 * np.array([(label == w) & (SLOT // 12 == k) for w in (1, -1) for k in range(4)]),
    }
    noise = np.array([response[clean & (SLOT == s)].var() for s in range(DAY)])[SLOT]
    total = np.array([(response[e] ** 2 - noise[e]).sum() for e in episodes])
    fits = {name: gain(response, episodes, shape) for name, shape in shapes.items()}
    lines = {"observed": response} | {name: fits[name][1] @ shapes[name] for name in (AHEAD, ALONE)}
    figures: dict[str, Any] = {"episodes": len(episodes), "skill": {k: estimate(f[0], total) for k, f in fits.items()}}
    figures["gain without foresight"] = {k: estimate(fits[ALONE][0] - fits[k][0], total) for k in fits if k != ALONE}
    for name, w, move in (("high", 1, (HIGH - NORMAL) / 100), ("low", -1, (NORMAL - LOW) / 100)):
        near = ahead(-0.03 * w * (label == w)) / 0.03  # of the response's size: it is not quite linear
        own, first = [e[label[e] == w] for e in episodes], np.array([e[0] for e in episodes if label[e[0]] == w])
        sums = [np.array([v[i].sum() for i in own]) for v in (response, w * label, near**2 * move, near * response)]
        figures[name] = {"response": estimate(*sums[:2]), "pounds per nat": estimate(*sums[2:])}
        for key in ("observed", AHEAD):
            before = lines[key][first[:, None] - [1, 2]].mean(1)
            figures[name][f"hour before, {key}"] = estimate(before, np.ones(len(first)))
    return figures, lines


@look()
def draw(year: Year, lines: dict[str, Array], path: Path) -> None:
    """Draw the mean response around the start of a high and of a low price, observed with its 95 % interval."""
    figure, panels = subplots(2, 1, figsize=(4.1, 5.2), sharex=True)
    for axes, w, name in zip(panels, (1, -1), ("high", "low"), strict=True):
        first = np.array([e[0] for e in year[3] if (year[0][e[0] : e[0] + 6] == w).all()])
        hours, slots = np.arange(-10, 6) / 2 + 0.25, first[:, None] + np.arange(-10, 6)
        for (label, line), color, dash in zip(lines.items(), (BLACK, RED, BLUE), ("o-", "--", "-"), strict=True):
            axes.plot(hours, 100 * line[slots].mean(0), dash, color=color, ms=3, lw=1.6, label=NAMES.get(label, label))
        mean, error = year[1][slots].mean(0), 1.96 * year[1][slots].std(0) / len(first) ** 0.5
        axes.fill_between(hours, 100 * (mean - error), 100 * (mean + error), alpha=0.2, fc=BLACK, label="95 % interval")
        axes.axvspan(0, 3, color="#FAF0CD", lw=0, zorder=0, label="high or low price")
        axes.set_title(f"{name} price: {len(first)} episodes of 3 hours or more")
        axes.set(ylabel="change of consumption, %", xticks=range(-5, 4))
    panels[1].set_xlabel("hours since the price changed")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center")
    save(figure, path)


if __name__ == "__main__":
    paths = [Path(word) for word in [*sys.argv[1:], "docs"][:3]]
    if not all(path.exists() for path in paths[:2]) or len(sys.argv) < 3:
        sys.exit(__doc__)
    figures, lines = study(year := read_year(paths[0]), paths[1])
    for part, name in ((key, name) for key in list(figures)[1:] for name in figures[key]):
        print(f"{part:22} {name:40} {{:7.3f}} [{{:.3f}}, {{:.3f}}]".format(*figures[part][name]))
    (paths[2] / "people.json").write_text(json.dumps(figures, indent=1) + "\n")
    draw(year, lines, paths[2] / "images" / "people.png")
