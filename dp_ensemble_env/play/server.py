"""The game as a page that only this computer can open: 127.0.0.1, a free port, and a secret in the address."""

from __future__ import annotations

import contextlib
import json
import secrets
import threading
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any

from dp_ensemble_env import scenarios
from dp_ensemble_env.play.game import Game
from dp_ensemble_env.reporting.charts import Chart, Series, hours

#: Nobody sends more than a price.
_LONGEST = 1000
_LOOKS = {"you": ("blue", ""), "optimum": ("green", "6 4"), "uncontrolled": ("red", "2 3")}


class PlayServer(ThreadingHTTPServer):
    """Serves one game; `address` is what the browser opens, and `seconds` the time for each step (0: no limit)."""

    daemon_threads = True

    def __init__(self, scenario: str, *, instance: int = 0, seed: int = 0, seconds: float = 0.0, port: int = 0) -> None:
        self.instance, self.seconds = instance, seconds
        self.token, self.lock = secrets.token_urlsafe(16), threading.Lock()
        self.game = Game(scenario, instance=instance, seed=seed)
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://127.0.0.1:{self.server_port}/{self.token}/"

    def new_game(self) -> None:
        """Begin the next day."""
        self.game = Game(self.game.scenario, instance=self.instance, seed=self.game.seed + 1)

    def html(self) -> str:
        """Return the page."""
        game, files = self.game, resources.files("dp_ensemble_env.reporting")
        style, script = ((files / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
        here = resources.files(__package__)
        facts = {"seconds": self.seconds, "charts": {name: chart.spec() for name, chart in _charts(game).items()}}
        card = scenarios.card(game.scenario)
        page = (here / "play.html").read_text(encoding="utf-8")
        for name, text in {
            "TITLE": escape(card.title),
            "STORY": escape(card.story),
            "STYLE": style,
            "FACTS": json.dumps(facts).replace("<", "\\u003c"),
            "CHARTS": script,
            "SCRIPT": (here / "play.js").read_text(encoding="utf-8"),
        }.items():
            page = page.replace(f"%%{name}%%", text)
        return page


def _charts(game: Game) -> dict[str, Chart]:
    """Return the two figures, still empty."""
    clock = hours(game.model).tolist()
    empty = [float("nan")] * len(clock)
    lines = [Series(name, clock, empty, color=color, dash=dash) for name, (color, dash) in _LOOKS.items()]
    if game.model.coupling is not None:
        lines.append(Series("asked", clock, empty, color="black", dash="2 3"))
    unit = f"power of a load (mean of {game.model.loads:,}), kW"
    known = "$ per kWh, as far as one knows now"
    market = [Series("market", clock, empty, color="black")]
    return {
        "power": Chart("Power", "hour of the day", unit, lines, clock=True, unit=" kW"),
        "market": Chart("What energy is worth", "hour of the day", known, market, clock=True),
    }


class _Handler(BaseHTTPRequestHandler):
    server: PlayServer

    def do_GET(self) -> None:  # noqa: N802 - the name is that of the standard library
        """Send the page, or the state."""
        place = self._place()
        if place == "":
            self._send(HTTPStatus.OK, self.server.html(), "text/html")
        elif place == "state":
            with self.server.lock:
                self._send(HTTPStatus.OK, json.dumps(self.server.game.state()))
        else:
            self._not_found()

    def do_POST(self) -> None:  # noqa: N802
        """Set a price, or begin anew."""
        place = self._place()
        if place not in ("step", "new"):
            self._not_found()
            return
        try:
            with self.server.lock:
                if place == "new":
                    self.server.new_game()
                else:
                    self.server.game.step(self._price())
                self._send(HTTPStatus.OK, json.dumps(self.server.game.state()))
        except ValueError as error:
            self._send(HTTPStatus.BAD_REQUEST, json.dumps({"error": str(error)}))

    def _place(self) -> str | None:
        """Return what is asked for behind the secret, or None without it."""
        host = (self.headers.get("Host") or "").rsplit(":", 1)[0]
        parts = self.path.split("?")[0].split("/")
        known = len(parts) == 3 and secrets.compare_digest(parts[1].encode(), self.server.token.encode())
        return parts[2] if known and host in ("127.0.0.1", "localhost") else None

    def _price(self) -> Any:
        length = self.headers.get("Content-Length", "")
        if length.isdigit() and int(length) <= _LONGEST:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                return json.loads(self.rfile.read(int(length)))["price"]
        raise ValueError('a price is missing; send {"price": 0.5}.')

    def _not_found(self) -> None:
        self._send(HTTPStatus.NOT_FOUND, '{"error": "there is nothing here; open the address that was printed."}')

    def _send(self, status: HTTPStatus, text: str, kind: str = "application/json") -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Stay silent: the terminal belongs to the player."""
