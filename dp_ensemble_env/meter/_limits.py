"""How large an input may be before it is taken for a mistake or an attack."""

from __future__ import annotations

from dataclasses import dataclass

from dp_ensemble_env.meter._origin import Origin
from dp_ensemble_env.tools.validation import check_positive

#: What is counted, and how many of it a file may have.
_MOST = {
    "bytes": 2_000_000_000,
    "readings": 20_000_000,
    "characters in a line": 1_000_000,
    "bytes in one XML token": 1_000_000,
    "meters": 10_000,
    "bytes once unpacked": 4_000_000_000,
}


@dataclass(frozen=True)
class Limits:
    """The limits on the size of an input, each raised `factor` times."""

    factor: float = 1.0

    def __post_init__(self) -> None:
        check_positive(self.factor, "limits")

    def most(self, what: str) -> int:
        """Return how many of something are accepted."""
        return int(_MOST[what] * self.factor)

    def check(self, what: str, count: int, origin: Origin) -> None:
        """Refuse a file that has more of something than is accepted; say how to raise the limit."""
        if count > self.most(what):
            enough = -(-count // _MOST[what])
            raise origin.error(
                f"the file has more than {self.most(what):,} {what}; if that is right, raise all limits with "
                f"limits={max(enough, 2)}."
            )
