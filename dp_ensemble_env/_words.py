"""How reprs and messages write times."""

from __future__ import annotations

from typing import Any

import numpy as np


def clock(instant: Any) -> str:
    """Write an instant like 2018-07-02 11:00, with seconds only if there are any."""
    text = str(np.datetime64(instant, "s")).replace("T", " ")
    return text[:-3] if text.endswith(":00") else text


def minutes(span: Any) -> str:
    """Write a time span in minutes, like 15 min."""
    return f"{np.timedelta64(span, 's').astype(np.int64) / 60:g} min"
