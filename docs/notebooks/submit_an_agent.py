# %% [markdown]
# # Submit an agent
#
# The leaderboard is a fixed protocol: the same test instances, seeds and budgets for everyone. A submission is one
# Python file with `predict`, or with `make(env)` if the agent trains itself. You run the protocol on your machine,
# and the results file is your evidence: anyone can recompute its rows.
#
# You need `pip install ".[plots,rl]"` in a clone. On Colab, clone the project first and put `%` before `pip`.
#
# ## The file
#
# This agent knows one price for each regime of the scenario `spot`. (The notebook on feedback finds these prices.)

# %%
from pathlib import Path

Path("my_agent.py").write_text("""
import numpy as np

PRICES = np.array([-0.4, 0.2, 0.8])  # surplus, normal, scarcity


def predict(observation, state=None, episode_start=None, deterministic=True):
    regime = np.argmax(observation[..., -3:], axis=-1)
    return PRICES[regime][..., None].astype(np.float32), state
""")

# %% [markdown]
# ## Try it on one scenario
#
# In a shell: `dp-ensemble leaderboard --submit my_agent.py --allow-code --action price --scenarios spot`. The option
# `--allow-code` allows the file to run; `--cells 1` plays one test instance on the private track instead of five.

# %%
import subprocess
import sys

COMMAND = "leaderboard --submit my_agent.py --allow-code --action price --scenarios spot --cells 1 --output runs/mine"
done = subprocess.run([sys.executable, "-m", "dp_ensemble_env", *COMMAND.split()], capture_output=True, text=True)
print("exit status", done.returncode)

# %% [markdown]
# Every row has a score for each test instance, and the score without data. The file holds the digest of your code,
# so nobody can pass a row off as another agent's.

# %%
import matplotlib.pyplot as plt
import numpy as np

from dp_ensemble_env.experiments.runner import read_results

content, rows = read_results(Path("runs/mine/leaderboard.json"))
row = next(row for row in rows if row.cell.split == "test" and len(row.deployed) > 1)  # the open track
mine = np.array([outcome.score for outcome in row.deployed])
print(f"{len(mine)} test instances, mean score {mine.mean():.0f}, without data {np.mean(row.without_data):.0f}")

figure, axes = plt.subplots(figsize=(5, 3), layout="constrained")
axes.plot(mine, "o", label="my agent")
axes.plot(row.without_data, "x", label="without data")
axes.axhline(100, color="0.6", ls="--", label="optimum")
axes.set(xlabel="test instance", ylabel="score", xticks=range(0, len(mine), 5), ylim=(0, 105))
axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
plt.show()

# %% [markdown]
# ## Submit
#
# Leave `--scenarios` out to play all of them. Then open a pull request with `my_agent.py`, the results file, and a
# sentence about what the agent knows: nothing, other instances, a release, or the truth. An agent that learned from
# a release states its ε.
