"""`dp-ensemble play`: set the price by hand, and see the score beside the optimum's."""

from __future__ import annotations

import webbrowser
from dataclasses import dataclass

from tyro.conf import Positional

from dp_ensemble_env import scenarios
from dp_ensemble_env.play.game import Game
from dp_ensemble_env.tools.console import Progress
from dp_ensemble_env.tools.validation import check_choice, check_count, check_in_range


@dataclass(frozen=True)
class Play:
    """Play a scenario by hand: set the price step by step, and compare your score with the optimum.

    The game is a page in the browser that only this computer can open. Ctrl-C ends it.

    Points compare your return so far with doing nothing (0) and with the optimal return of the whole day (100). At the
    end they are your score.

    Examples
    --------
      dp-ensemble play
      dp-ensemble play spot --seconds 5
      dp-ensemble play campus-event --prices 0 0.4 0.4 0.3
    """

    scenario: Positional[str] = "call"
    """Built-in problem; dp-ensemble scenarios lists them."""
    instance: int = 0
    """Number of the scenario's training instance."""
    seed: int = 0
    """Seed of the day: its start and all random moves."""
    seconds: float = 0.0
    """Seconds for each step, after which the price is used as set; 0 disables the timer."""
    port: int = 0
    """Port of the page; 0 takes a free one."""
    no_browser: bool = False
    """Print the page's address instead of opening a browser."""
    prices: tuple[float, ...] = ()
    """Play this price sequence non-interactively, in [-1, 1]; the last value repeats."""

    def run(self) -> int:
        """Play the prices that were given, or on a page."""
        check_choice(self.scenario, "SCENARIO", scenarios.names())
        check_count(self.seed, "--seed", 0)
        check_count(self.port, "--port", 0, 65535)
        check_in_range(self.seconds, "--seconds", 0.0, 86400.0)
        for price in self.prices:
            check_in_range(price, "--prices", -1.0, 1.0)
        return self.by_list() if self.prices else self.on_a_page()

    def by_list(self) -> int:
        """Play the prices that were given."""
        with Progress("finding the optimum"):
            game = Game(self.scenario, instance=self.instance, seed=self.seed)
        if len(self.prices) > game.model.horizon:
            raise ValueError(f"--prices has {len(self.prices)} numbers, but the day has {game.model.horizon} steps.")
        while not game.done:
            game.step(self.prices[min(game.time, len(self.prices) - 1)])
        print(game.words())
        return 0

    def on_a_page(self) -> int:
        """Serve the game to a browser on this computer."""
        from dp_ensemble_env.play.server import PlayServer

        settings = {"instance": self.instance, "seed": self.seed, "port": self.port}
        with Progress("finding the optimum"):
            server = PlayServer(self.scenario, seconds=self.seconds, **settings)
        with server:
            print(f"Play at {server.address}\nCtrl-C ends the game.", flush=True)
            if not self.no_browser:
                webbrowser.open(server.address)
            try:
                server.serve_forever(poll_interval=0.2)
            except KeyboardInterrupt:
                raise KeyboardInterrupt(server.game.words()) from None
        return 0
