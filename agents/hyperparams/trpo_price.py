"""For rl_zoo3: ``-conf dp_ensemble_env.agents.hyperparams.trpo_price``."""

from dp_ensemble_env.agents.hyperparams import ZooSettings

hyperparams = ZooSettings("trpo", "price")
