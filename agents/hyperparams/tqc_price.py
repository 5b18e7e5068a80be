"""For rl_zoo3: ``-conf dp_ensemble_env.agents.hyperparams.tqc_price``."""

from dp_ensemble_env.agents.hyperparams import ZooSettings

hyperparams = ZooSettings("tqc", "price")
