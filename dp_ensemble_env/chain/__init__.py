"""From a power series to levels, counts and default behaviour."""

from dp_ensemble_env.chain.markov import MarkovChain, as_step, ensemble, estimate_chain, select_days

__all__ = ["MarkovChain", "as_step", "ensemble", "estimate_chain", "select_days"]
