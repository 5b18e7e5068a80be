"""The game in a window of pygame: the environment's own picture, and below it the price in the player's hand."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from dp_ensemble_env.play.game import Game

BAR = 120
#: How far an arrow key moves the price.
NOTCH = 0.05
_INK, _PAPER, _BLUE, _RED, _PALE = (27, 27, 27), (255, 255, 255), (0, 96, 160), (192, 74, 0), (222, 222, 222)
HELP = "arrows or mouse: price    Enter: set it    R: new day    Esc: end"


def has_display() -> bool:
    """Whether a window could be opened here."""
    return sys.platform in ("win32", "darwin") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def play(make_game: Callable[[int], Game], *, seed: int = 0, seconds: float = 0.0, frames: int | None = None) -> Game:
    """Show the game until the window is closed, or for so many frames; return it.

    `make_game` makes the game of a seed, with frames; each new day has the next seed. `seconds` is the time for each
    step, 0 for as long as one likes.
    """
    import pygame

    pygame.display.init()
    pygame.font.init()
    if pygame.display.get_driver() == "offscreen" and "SDL_VIDEODRIVER" not in os.environ:
        raise pygame.error("no display answers")  # SDL would play where nobody sees it
    try:
        table = _Table(pygame, make_game(seed), seconds)
        pace, shown = pygame.time.Clock(), 0
        while frames is None or shown < frames:
            for event in pygame.event.get():
                if event.type == pygame.QUIT or (event.type == pygame.KEYDOWN and event.key == pygame.K_ESCAPE):
                    return table.game
                if event.type == pygame.KEYDOWN and event.key == pygame.K_r:
                    seed += 1
                    table.begin(make_game(seed))
                else:
                    table.take(event)
            table.tick(time.monotonic())
            table.draw()
            pace.tick(30)
            shown += 1
        return table.game
    finally:
        pygame.display.quit()


class _Table:
    """The window, the game in it, and the price in the player's hand."""

    def __init__(self, pygame: Any, game: Game, seconds: float) -> None:
        self.pygame, self.seconds, self.window = pygame, seconds, None
        self.font = pygame.font.Font(None, 22)
        self.begin(game)

    def begin(self, game: Game) -> None:
        self.game, self.price = game, 0.0
        self.look()

    def look(self) -> None:
        """Take the environment's picture after a step."""
        frame = np.transpose(np.asarray(self.game.env.render()), (1, 0, 2))
        self.picture = self.pygame.surfarray.make_surface(frame)
        self.wide, self.tall = frame.shape[:2]
        if self.window is None:
            self.window = self.pygame.display.set_mode((self.wide, self.tall + BAR))
            self.pygame.display.set_caption("dp-ensemble play")
        self.began = time.monotonic()

    def take(self, event: Any) -> None:
        pygame = self.pygame
        if event.type == pygame.KEYDOWN:
            move = {pygame.K_LEFT: -NOTCH, pygame.K_RIGHT: NOTCH, pygame.K_DOWN: -4 * NOTCH, pygame.K_UP: 4 * NOTCH}
            self.set(self.price + move.get(event.key, 0.0))
            if event.key in (pygame.K_RETURN, pygame.K_SPACE):
                self.step()
        held = event.type == pygame.MOUSEMOTION and event.buttons[0]
        if held or event.type == pygame.MOUSEBUTTONDOWN:
            self.set(2.0 * (event.pos[0] - 40) / (self.wide - 80) - 1.0)

    def set(self, price: float) -> None:
        self.price = float(np.clip(round(price / NOTCH) * NOTCH, -1.0, 1.0))

    def step(self) -> None:
        if not self.game.done:
            self.game.step(self.price)
            self.look()

    def tick(self, now: float) -> None:
        """Set the price when the time is up."""
        if self.seconds and now - self.began >= self.seconds:
            self.step()

    def draw(self) -> None:
        pygame, window, top = self.pygame, self.window, self.tall
        assert window is not None
        window.fill(_PAPER)
        window.blit(self.picture, (0, 0))
        left, right, y = 40, self.wide - 40, top + 56
        pygame.draw.line(window, _PALE, (left, y), (right, y), 6)
        pygame.draw.line(window, _INK, ((left + right) // 2, y - 10), ((left + right) // 2, y + 10), 2)
        pygame.draw.circle(window, _BLUE, (int(left + (right - left) * (self.price + 1) / 2), y), 11)
        if self.seconds and not self.game.done:
            share = max(0.0, 1.0 - (time.monotonic() - self.began) / self.seconds)
            pygame.draw.line(window, _RED, (0, top + 2), (int(self.wide * share), top + 2), 4)
        for text, place in (
            (self.game.words(), top + 14),
            (f"price {self.price:+.2f}: right of the middle lowers the power    {HELP}", top + 88),
        ):
            window.blit(self.font.render(text, True, _INK), (left, place))
        pygame.display.flip()
