"""For rl_zoo3: ``-conf dp_ensemble_env.agents.hyperparams.sac_tilt``."""

from dp_ensemble_env.agents.hyperparams import ZooSettings

hyperparams = ZooSettings("sac", "tilt")
