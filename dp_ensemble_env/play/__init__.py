"""Play an environment by hand: set the price step by step, and see the score beside the optimum's.

`Game` is the play itself; `server` shows it as a page.
"""

from __future__ import annotations

from dp_ensemble_env.play.game import Game

__all__ = ["Game"]
