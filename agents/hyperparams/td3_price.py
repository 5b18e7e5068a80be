"""For rl_zoo3: ``-conf dp_ensemble_env.agents.hyperparams.td3_price``."""

from dp_ensemble_env.agents.hyperparams import ZooSettings

hyperparams = ZooSettings("td3", "price")
