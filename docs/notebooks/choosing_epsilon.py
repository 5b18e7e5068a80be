# %% [markdown]
# # Choosing a mechanism and ε
#
# How much privacy can a fleet afford? Choose **before** you look at the real data: a choice that depends on the data
# reveals something about them, and no ε covers that. So we simulate a fleet like ours, measure the cost of each
# mechanism, decide, and only then draw one release.
#
# You need `pip install ".[plots]"` in a clone. On Colab, clone the project first and put `%` before `pip`.
#
# ## What does privacy cost?
#
# A plan is computed from a *release*, a noisy copy of how the loads behave, and deployed on the simulated truth. The
# score is 0 for uncontrolled loads and 100 for the optimum. The rival is a plan without any data, at ε = 0.

# %%
from dp_ensemble_env.experiments.frontier import FrontierSettings, measure, table

settings = FrontierSettings(
    instances=(20,),
    heterogeneity=(30.0,),
    participants=(300, 1000, 4000),
    epsilons=(0.5, 1.0, 4.0),
    mechanisms=("gaussian", "laplace"),
    draws=5,
)
points = measure(settings)
headings, rows = table(points)
for row in [headings, *rows]:
    print("".join(cell.rjust(14 if i > 4 else 10 if i == 2 else 7) for i, cell in enumerate(row) if i > 1))

# %% [markdown]
# Each cell shows the mean and the worst of five releases; in the figure, a bar reaches down to the worst. Every
# release protects everything that one participant ever contributed.

# %%
import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(6, 3.5))
for name, line in (("gaussian", "-o"), ("laplace", "--s")):
    for number in settings.participants:
        mine = [p for p in points if p.mechanism == name and p.participants == number]
        x, y = [p.epsilon for p in mine], [p.mean for p in mine]
        down = [[p.mean - p.worst for p in mine], [0.0 for _ in mine]]  # to the worst release
        axes.errorbar(x, y, down, fmt=line, capsize=3, label=f"{name}, {number:,} participants")
axes.axhline(points[0].public, color="black", ls=":", label="without data")
axes.axhline(100, color="0.6", ls=":", label="optimum")
axes.set(xscale="log", xlabel="ε", ylabel="score on the truth (axis starts above 0)")
axes.set_xticks(settings.epsilons, [f"{epsilon:g}" for epsilon in settings.epsilons])
axes.minorticks_off()
axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()

# %% [markdown]
# ## Decide
#
# With 1,000 participants the Gaussian mechanism beats the plan without data already at ε = 0.5. Fewer participants
# need a larger ε, or no data at all. Our rule, fixed beforehand: the smallest ε whose *worst* release is a point
# above the plan without data.

# %%
ours = [p for p in points if p.mechanism == "gaussian" and p.participants == 1000]
enough = [p for p in ours if p.worst >= p.public + 1]
choice = min(p.epsilon for p in enough)
print(f"we choose epsilon = {choice:g}")

# %% [markdown]
# ## Spend it once
#
# The ledger has a budget. It charges first, then draws, and refuses draws beyond the budget.

# %%
from dp_ensemble_env import campus_event
from dp_ensemble_env.privacy import Fleet, PrivacyBudgetExceeded, PrivacyLedger, mechanism

fleet = Fleet.simulate(campus_event(), participants=1000, seed=1)  # yours: Fleet.read("meters.csv", ...)
ledger = PrivacyLedger(budget=(choice, 1e-6))
release = ledger.release(mechanism(f"gaussian:epsilon={choice}"), fleet, rng=0)  # to publish, leave rng out
print(f"spent epsilon = {ledger.spent(1e-6):.2f} at delta = 1e-6")
try:
    ledger.release(mechanism("gaussian:epsilon=1"), fleet, rng=1)
except PrivacyBudgetExceeded:
    print("a second release is refused: the budget is spent")

# %% [markdown]
# Everything computed from the release costs no further privacy: plans, simulations, trained agents.
