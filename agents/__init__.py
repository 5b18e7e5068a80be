"""Controllers of the ensemble, planned and learned: one registry.

All agents have Stable-Baselines3's ``predict``. Agents are made by name with `make_agent` and scored with
`evaluate`; the modules that need PyTorch are imported when one of their agents is asked for.
"""

from dp_ensemble_env.agents.base import Agent, Kind, agent_kind, agent_names, make_agent, register_agent
from dp_ensemble_env.agents.evaluation import evaluate
from dp_ensemble_env.agents.generalisation import SplitOutcome, evaluate_split

__all__ = [
    "Agent",
    "Kind",
    "SplitOutcome",
    "agent_kind",
    "agent_names",
    "evaluate",
    "evaluate_split",
    "make_agent",
    "register_agent",
]
