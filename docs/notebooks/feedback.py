# %% [markdown]
# # Feedback
#
# On `spot` the price of power jumps between regimes that nobody can predict. A schedule that is fixed in advance
# scores little, however good it is. A rule that looks at the price scores more. How much is feedback worth?
#
# You need `pip install ".[plots]"` in a clone. On Colab, clone the project first and put `%` before `pip`.

# %%
import gymnasium
import numpy as np

import dp_ensemble_env
from dp_ensemble_env.agents import evaluate, make_agent

gymnasium.register_envs(dp_ensemble_env)
env = gymnasium.make("dp_ensemble/Spot-price-v1")
model = env.unwrapped.model
print("regimes:", ", ".join(model.context.names))
print(f"{model.horizon} decisions; an observation has {env.observation_space.shape[0]} numbers")

# %% [markdown]
# The last numbers of an observation show the regime. A rule needs nothing else: one price for each regime.

# %%
regimes = len(model.context.names)


class Rule:
    def __init__(self, prices):
        self.prices = np.asarray(prices)

    def predict(self, observation, state=None, episode_start=None, deterministic=True):
        regime = np.argmax(np.asarray(observation)[..., -regimes:], axis=-1)
        return self.prices[regime][..., None].astype(np.float32), state


def score(agent):
    return evaluate(agent, env, episodes=128).score


# %% [markdown]
# We search for good prices on the id's *training* instance, one regime after the other.

# %%
prices = np.zeros(regimes)
for regime in range(regimes):
    tried = []
    for price in (-0.4, -0.2, 0.0, 0.2, 0.4, 0.8):
        prices[regime] = price
        tried.append((score(Rule(prices)), price))
    prices[regime] = max(tried)[1]
print("price in each regime:", dict(zip(model.context.names, prices.tolist(), strict=True)))

# %% [markdown]
# The rivals: nobody interferes; the best price that never changes; the best schedule by time of day, computed in
# hindsight as a bound; the plan without private data; and the optimum, 100.

# %%
from dp_ensemble_env.experiments.probes import recorded

scores = {
    "uncontrolled": score(make_agent("uncontrolled", env)),
    "best constant price": score(make_agent("best-price", env)),
    "best fixed schedule": recorded("spot")[0].open_loop,
    "without data": recorded("spot")[0].public_guess,
    "our rule": score(Rule(prices)),
    "optimum": 100.0,
}
for name, value in scores.items():
    print(f"{name:20} {value:6.1f}")

# %%
import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(5, 2.6), layout="constrained")
axes.barh(list(scores), list(scores.values()))
axes.invert_yaxis()
axes.set(xlabel="score (0 = uncontrolled, 100 = optimum)", xlim=(0, 105))
plt.show()

# %% [markdown]
# Report scores on instances that you never tuned on: `dp-ensemble evaluate RUN --split test` does it for a trained
# agent, and `dp-ensemble leaderboard --submit FILE` does it for a rule like this one.
