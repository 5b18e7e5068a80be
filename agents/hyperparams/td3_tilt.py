"""For rl_zoo3: ``-conf dp_ensemble_env.agents.hyperparams.td3_tilt``."""

from dp_ensemble_env.agents.hyperparams import ZooSettings

hyperparams = ZooSettings("td3", "tilt")
