"""`dp-ensemble play`: set the price by hand, and see the score beside the optimum's."""

from __future__ import annotations

import argparse
import importlib.util
import math
import webbrowser

from dp_ensemble_env import scenarios
from dp_ensemble_env.cli import options
from dp_ensemble_env.cli.shell import Parser, execute
from dp_ensemble_env.play.game import Game
from dp_ensemble_env.tools.console import Progress
from dp_ensemble_env.tools.validation import check_choice

DESCRIPTION = """Play a scenario by hand: set the price step by step, and see your score beside the optimum's.

A window opens where there is a display and pygame; otherwise, and with --web, a page that only this computer can open.
Ctrl-C ends the game.

Points place what you have earned between doing nothing (0) and what the optimal policy earns in the whole day (100). At
the end they are your score."""
EXAMPLES = (
    "dp-ensemble play",
    "dp-ensemble play spot --web --seconds 5",
    "dp-ensemble play campus-event --prices 0 0.4 0.4 0.3",
)


def build_parser() -> Parser:
    """Declare the options."""
    parser = Parser(prog="dp-ensemble play", description=DESCRIPTION, examples=EXAMPLES)
    words = "which scenario (default campus-event; see dp-ensemble scenarios)"
    parser.add_argument("scenario", nargs="?", default="campus-event", metavar="SCENARIO", help=words)
    words = "seconds for each step, after which the price is taken as it stands; 0 for no clock"
    parser.add_argument("--seconds", type=options.nonnegative, default=0.0, metavar="S", help=words)
    parser.add_argument("--web", action="store_true", help="play on a page in the browser, not in a window")
    words = "port of the page (default: a free one)"
    parser.add_argument("--port", type=options.whole(0, 65535), default=0, metavar="N", help=words)
    parser.add_argument("--no-browser", action="store_true", help="print the page's address, and open no browser")
    words = "play these prices in [-1, 1] without a surface, the last one to the end, and print the score"
    parser.add_argument("--prices", type=price, nargs="+", metavar="X", help=words)
    options.add(parser, "instance", "seed", helps={"seed": "seed of the day: its start, and what moves by chance"})
    return parser


def price(text: str) -> float:
    """Read a price."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not -1.0 <= value <= 1.0:
        raise argparse.ArgumentTypeError(f"must be numbers between -1 and 1, got {text}")
    return value


def run(args: argparse.Namespace) -> int:
    """Play on the surface that there is."""
    check_choice(args.scenario, "SCENARIO", scenarios.names())
    if args.prices:
        return _by_list(args)
    from dp_ensemble_env.play.window import has_display

    if args.web or not has_display() or importlib.util.find_spec("pygame") is None:
        return _on_a_page(args)
    return _in_a_window(args)


def _by_list(args: argparse.Namespace) -> int:
    with Progress("finding the optimum"):
        game = Game(args.scenario, instance=args.instance, seed=args.seed)
    if len(args.prices) > game.model.horizon:
        raise ValueError(f"--prices has {len(args.prices)} numbers, and the day has {game.model.horizon} steps.")
    while not game.done:
        game.step(args.prices[min(game.time, len(args.prices) - 1)])
    print(game.words())
    return 0


def _on_a_page(args: argparse.Namespace) -> int:
    from dp_ensemble_env.play.server import PlayServer

    with Progress("finding the optimum"):
        about = {"instance": args.instance, "seed": args.seed, "seconds": args.seconds, "port": args.port}
        server = PlayServer(args.scenario, **about)
    with server:
        print(f"Play at {server.address}\nCtrl-C ends the game.", flush=True)
        if not args.no_browser:
            webbrowser.open(server.address)
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(server.game.words()) from None
    return 0


def _in_a_window(args: argparse.Namespace) -> int:
    from dp_ensemble_env.play.window import play

    def make(seed: int) -> Game:
        return Game(args.scenario, instance=args.instance, seed=seed, render_mode="rgb_array")

    import pygame

    try:
        print(play(make, seed=args.seed, seconds=args.seconds).words())
    except pygame.error as error:
        options.say(f"No window could be opened ({error}), so here is the page.")
        return _on_a_page(args)
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run the command."""
    return execute(build_parser, run, argv)
