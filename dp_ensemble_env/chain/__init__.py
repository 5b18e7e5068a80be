"""From a power series to levels, counts and default behaviour."""

from dp_ensemble_env.chain.calendar import (
    as_step,
    day_of_week,
    day_type,
    hour_of_day,
    resample,
    select_days,
    similar_days,
)
from dp_ensemble_env.chain.markov import MarkovChain, TimedChain, ensemble, estimate_chain

__all__ = [
    "MarkovChain",
    "TimedChain",
    "as_step",
    "day_of_week",
    "day_type",
    "ensemble",
    "estimate_chain",
    "hour_of_day",
    "resample",
    "select_days",
    "similar_days",
]
