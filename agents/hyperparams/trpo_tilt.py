"""For rl_zoo3: ``-conf dp_ensemble_env.agents.hyperparams.trpo_tilt``."""

from dp_ensemble_env.agents.hyperparams import ZooSettings

hyperparams = ZooSettings("trpo", "tilt")
