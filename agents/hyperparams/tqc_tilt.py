"""For rl_zoo3: ``-conf dp_ensemble_env.agents.hyperparams.tqc_tilt``."""

from dp_ensemble_env.agents.hyperparams import ZooSettings

hyperparams = ZooSettings("tqc", "tilt")
