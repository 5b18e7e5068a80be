"""For rl_zoo3: ``-conf dp_ensemble_env.agents.hyperparams.dqn_price``."""

from dp_ensemble_env.agents.hyperparams import zoo_hyperparams

hyperparams = zoo_hyperparams("dqn", "price")
