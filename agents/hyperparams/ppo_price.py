"""For rl_zoo3: ``-conf dp_ensemble_env.agents.hyperparams.ppo_price``."""

from dp_ensemble_env.agents.hyperparams import ZooSettings

hyperparams = ZooSettings("ppo", "price")
