# %% [markdown]
# # A scenario of your own
#
# A scenario is a function from an instance's seed to an `EnsembleModel`, and a card that tells its story. Once it is
# registered, it has environments, scores, private releases and comparisons like the built-in ones.
#
# You need `pip install ".[plots]"` in a clone. On Colab, clone the project first and put `%` before `pip`.
#
# Ours: greenhouses that light their plants. A lamp is off, on half, or on. Power is expensive in the evening.

# %%
import numpy as np

from dp_ensemble_env import EnsembleModel, scenarios
from dp_ensemble_env.scenarios import Card

PRICE = np.array([0.10] * 8 + [0.60] * 4 + [0.10] * 4)  # dollars per kWh, a quarter hour each
POWER = np.array([0.0, 40.0, 80.0])  # kW of a greenhouse


def greenhouses(seed: int, penalty: float = 3.0) -> EnsembleModel:
    """Equal seeds must give equal models: growers differ, so each instance has habits of its own."""
    stay = 0.6 + 0.3 * np.random.default_rng(seed).random()
    change = (1 - stay) / 2
    return EnsembleModel(
        default=np.full((3, 3), change) + (stay - change) * np.eye(3),
        power_kw=POWER,
        utility=-np.append(PRICE, 0.0)[:, None] * POWER / 4,
        discomfort_penalty=penalty,
    )


card = Card(title="Greenhouses", story="Lamps that wait until power is cheap.", sources="synthetic")
scenarios.register("greenhouses", greenhouses, card)

# %% [markdown]
# `default[b, a]` is the probability that a load moves from level `b` to level `a` if nobody interferes. `utility` has
# one row more than there are decisions: the earnings of each level at each time. The penalty sets how hard the loads
# are to move, in dollars per nat of divergence from the default.
#
# The ids are registered at once:

# %%
import gymnasium

from dp_ensemble_env.agents import evaluate, make_agent

env = gymnasium.make("dp_ensemble/Greenhouses-tilt-v0")
for name in ("uncontrolled", "best-price", "without-data", "standard"):
    print(f"{name:14} {evaluate(make_agent(name, env), env).score:6.1f}")

# %% [markdown]
# *Without data* plans on a guess of the habits. If it scores near 100, the scenario needs no private data. If
# *best-price* does, one constant price is enough. A good scenario leaves space below 100 for both.
#
# Privacy works, too. Instances other than 0 vary the habits:

# %%
from dp_ensemble_env.experiments.deployment import deploy

private = gymnasium.make(
    "dp_ensemble/Greenhouses-tilt-v0", privacy="gaussian:epsilon=1,participants=1000", instance=1, release_seed=0
).unwrapped
print(deploy(make_agent("standard", private), private, scenarios.make("greenhouses", instance=1)))

# %%
import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(5, 3), layout="constrained")
for name in ("uncontrolled", "standard"):
    outcome = evaluate(make_agent(name, env), env)
    axes.plot(np.arange(len(outcome.power_kw)) / 4, outcome.power_kw / env.unwrapped.model.loads, label=name)
axes.axvspan(2, 3, color="0.9")
axes.set(xlabel="hours (shaded: expensive)", ylabel="mean power, kW", ylim=(0, 80))
axes.legend()
plt.show()

# %% [markdown]
# The page on the model explains contexts (weather, prices that jump), physics and limits. CONTRIBUTING.md explains how
# to make a scenario part of the package.
