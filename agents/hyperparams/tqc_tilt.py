"""For rl_zoo3: ``-conf dp_ensemble_env.agents.hyperparams.tqc_tilt``."""

from dp_ensemble_env.agents.hyperparams import zoo_hyperparams

hyperparams = zoo_hyperparams("tqc", "tilt")
