"""For rl_zoo3: ``-conf dp_ensemble_env.agents.hyperparams.trpo_price``."""

from dp_ensemble_env.agents.hyperparams import zoo_hyperparams

hyperparams = zoo_hyperparams("trpo", "price")
