"""For rl_zoo3: ``-conf dp_ensemble_env.agents.hyperparams.sac_price``."""

from dp_ensemble_env.agents.hyperparams import ZooSettings

hyperparams = ZooSettings("sac", "price")
