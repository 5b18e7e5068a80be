"""For rl_zoo3: ``-conf dp_ensemble_env.agents.hyperparams.ppo_tilt``."""

from dp_ensemble_env.agents.hyperparams import ZooSettings

hyperparams = ZooSettings("ppo", "tilt")
