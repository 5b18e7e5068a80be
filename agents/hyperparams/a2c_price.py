"""For rl_zoo3: ``-conf dp_ensemble_env.agents.hyperparams.a2c_price``."""

from dp_ensemble_env.agents.hyperparams import ZooSettings

hyperparams = ZooSettings("a2c", "price")
