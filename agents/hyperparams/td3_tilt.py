"""For rl_zoo3: ``-conf dp_ensemble_env.agents.hyperparams.td3_tilt``."""

from dp_ensemble_env.agents.hyperparams import zoo_hyperparams

hyperparams = zoo_hyperparams("td3", "tilt")
