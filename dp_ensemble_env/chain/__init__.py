"""From a power series to levels, counts and default behaviour."""

from dp_ensemble_env.chain.calendar import as_step, day_of_week, resample, select_days, similar_days
from dp_ensemble_env.chain.markov import MarkovChain, ensemble, estimate_chain

__all__ = [
    "MarkovChain",
    "as_step",
    "day_of_week",
    "ensemble",
    "estimate_chain",
    "resample",
    "select_days",
    "similar_days",
]
