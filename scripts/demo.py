"""Compare the analytical policies on a demand-response event of the built-in campus.

    python scripts/demo.py
    python scripts/demo.py --k 200 --start 14:00 --end 18:00 --output runs/afternoon

Prints one table and writes one picture. The campus is synthetic.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from dp_ensemble_env._files import atomic_write
from dp_ensemble_env._validation import check_count, check_positive
from dp_ensemble_env.campus import campus_event
from dp_ensemble_env.cost import cost_of_privacy, release_cost
from dp_ensemble_env.lsmdp import solve
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.policies import solve_policy
from dp_ensemble_env.privacy.mechanism import DirichletMechanism
from dp_ensemble_env.report import Outcome, event_outcome

# Okabe and Ito's colours, distinguishable by colour-blind readers.
BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, RED, PINK = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7",
)  # fmt: skip
STYLES = {
    "uncontrolled": (BLACK, "-"),
    "standard": (BLUE, "-"),
    "Taylor": (ORANGE, "--"),
    "Digamma": (RED, ":"),
    "average value": (GREEN, "-."),
    "standard on one release": (PINK, "-"),
}
Row = tuple[str, Outcome, str]


def policy_rows(model: EnsembleModel, k: float, samples: int, seed: int) -> list[Row]:
    """Solve every policy and evaluate it exactly on the true dynamics."""
    true_matrix = "none: computed from the true matrix"
    release = DirichletMechanism(k).release(model.default, rng=seed)
    private = solve(release.log_matrix, model.utility, model.discomfort_penalty).policy
    policies = [
        ("uncontrolled", model.default_policy, "nothing to hide: no policy"),
        ("standard", solve_policy(model, "standard"), true_matrix),
        ("Taylor", solve_policy(model, "taylor", k), true_matrix),
        ("Digamma", solve_policy(model, "digamma", k), true_matrix),
        (
            "average value",
            solve_policy(model, "average", k, samples=samples, rng=seed),
            f"that of {samples:,} releases together",
        ),
        ("standard on one release", private, "that of one release"),
    ]
    return [(name, event_outcome(model, policy), privacy) for name, policy, privacy in policies]


def show_table(model: EnsembleModel, rows: list[Row], k: float) -> None:
    """Print the event's table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title=f"Event {str(model.times[0])[:10]}, control {_clock(model.times[0])}–{_clock(model.times[-1])}, "
        f"{model.buildings} buildings, k = {k:g}",
        caption="Score: 0 = uncontrolled, 100 = exact optimum. Every row is evaluated exactly on the true dynamics.",
    )
    table.add_column("policy")
    for heading in (
        "score",
        "gap\n$/building",
        "curtailed at\nthe peak, kW",
        "over the\nevent, kWh",
        "discomfort\n$/building",
    ):
        table.add_column(heading, justify="right")
    table.add_column("privacy it offers")
    for name, out, privacy in rows:
        table.add_row(
            name,
            f"{out.score:.1f}",
            f"{out.gap:.2f}",
            f"{out.curtailed_peak_kw:,.0f}",
            f"{out.curtailed_kwh:,.0f}",
            f"{out.discomfort:.2f}",
            privacy,
        )
    console = Console(width=None if sys.stdout.isatty() else 132)
    console.print(table)
    console.print(
        "The campus is synthetic. Taylor and Digamma expect the noise but add none, so they protect nobody; a "
        "release without a floor has no guarantee that holds for all data.",
        highlight=False,
    )


def draw(model: EnsembleModel, rows: list[Row], samples: int, seed: int, path: Path) -> None:
    """Draw the event and the cost of privacy in one picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.3), width_ratios=(1.25, 1), layout="constrained")
    hours = (model.times - model.times[0].astype("datetime64[D]")) / np.timedelta64(3600, "s")
    window = hours[model.event.in_event]
    left.axvspan(window[0] - model.step_hours, window[-1], color="0.93", lw=0)
    left.text(window[0] - model.step_hours + 0.05, 0.96, "event", color="0.35", transform=left.get_xaxis_transform())
    if model.event.baseline_kw is not None:
        left.plot(hours, model.event.baseline_kw / 1e3, color="0.55", ls=(0, (1, 1)), lw=1.5, label="customer baseline")
    for name, out, _ in rows:
        colour, dash = STYLES[name]
        left.plot(hours, out.power_kw / 1e3, color=colour, ls=dash, lw=1.8, label=name)
    left.set(
        xlabel="hour of the day (end of the interval)", ylabel=f"expected power of {model.buildings} buildings, MW"
    )
    left.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(0.0, -0.17), ncols=4)
    left.set_title("What each policy does", loc="left")

    ks = np.geomspace(10, 2000, 13)
    for name, method in (("Taylor", "taylor"), ("Digamma", "digamma"), ("average value", "average-exact")):
        colour, _ = STYLES[name]
        exact = [model.initial @ cost_of_privacy(model, k, method)[0] for k in ks]
        right.loglog(ks, exact, color=colour, lw=1.8, label=f"{name}, exact")
        if method != "average-exact":
            paper = [model.initial @ cost_of_privacy(model, k, method, "paper")[0] for k in ks]
            right.loglog(ks, paper, color=colour, lw=1.2, ls="--", label=f"{name}, paper's formula")
    estimates = [release_cost(model, k, samples=min(samples, 300), rng=seed) for k in ks]
    mean = np.array([model.initial @ e.mean[0] for e in estimates])
    error = np.array([model.initial @ e.standard_error[0] for e in estimates])
    right.loglog(ks, mean, color=PINK, lw=1.8, label="one release, exact (± 2 s.e.)")
    right.fill_between(ks, mean - 2 * error, mean + 2 * error, color=PINK, alpha=0.3, lw=0)
    right.set(xlabel="concentration k (larger: less noise, less privacy)", ylabel="cost of privacy, $ per building")
    right.legend(frameon=False, fontsize=8, loc="lower left")
    right.set_title("What the noise costs", loc="left")
    with atomic_write(path, "wb") as stream:
        figure.savefig(stream, format="png", dpi=150)
    plt.close(figure)


def _clock(stamp: np.datetime64) -> str:
    return str(stamp)[11:16]


def main(argv: list[str] | None = None) -> int:
    """Run the demonstration."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--k", type=float, default=50.0, help="concentration of the Dirichlet noise (default 50)")
    parser.add_argument("--samples", type=int, default=1000, help="draws of the average value policy (default 1000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the campus, the release and the draws (default 0)")
    parser.add_argument("--start", default="11:00", help="start of the event (default 11:00)")
    parser.add_argument("--end", default="15:00", help="end of the event (default 15:00)")
    parser.add_argument(
        "--output", type=Path, default=Path("runs/demo"), help="folder for the picture (default runs/demo)"
    )
    args = parser.parse_args(argv)
    try:
        check_positive(args.k, "--k")
        check_count(args.samples, "--samples", 2)
        check_count(args.seed, "--seed", 0)
        model = campus_event(args.seed, start=args.start, end=args.end)
        from rich.console import Console

        with Console(stderr=True).status("solving (the first run compiles, which takes some seconds)"):
            rows = policy_rows(model, args.k, args.samples, args.seed)
        show_table(model, rows, args.k)
        picture = args.output / "event.png"
        with Console(stderr=True).status("drawing"):
            draw(model, rows, args.samples, args.seed, picture)
    except ValueError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2
    print(f"Picture: {picture}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
