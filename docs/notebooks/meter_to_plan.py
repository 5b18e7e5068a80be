# %% [markdown]
# # Your own meter to a plan
#
# From a file of meter readings to set-points for a demand-response event. We first write a file, so that the notebook
# runs anywhere; replace its name with yours.
#
# You need `pip install ".[plots]"` in a clone. On Colab, clone the project first and put `%` before `pip`.

# %%
import numpy as np

rng = np.random.default_rng(0)
start = np.datetime64("2018-06-04T00:00")
with open("meter.csv", "w") as file:
    file.write("timestamp,power_kw\n")
    for i in range(70 * 96):  # ten weeks of quarter hours
        hour, working_day = (i % 96) / 4, (i // 96) % 7 < 5
        load = 150 + 90 * np.exp(-(((hour - 14) / 4) ** 2)) * working_day + rng.normal(0, 6)
        file.write(f"{start + np.timedelta64(15 * i, 'm')},{load:.2f}\n")

# %% [markdown]
# ## Read it
#
# `read_meter` understands plain and wide CSV, utility exports, Green Button XML, Excel and parquet. It never
# guesses in silence: state the unit, and which end of an interval is stamped.

# %%
from dp_ensemble_env import DemandResponseEvent, EnsembleModel, read_meter, standard_policy

series = read_meter("meter.csv", unit="kW", stamp="start")
print(series)

# %% [markdown]
# ## How the load behaves, and what control could do
#
# The readings become a Markov chain between power levels: the load's *default behaviour*. The optimal plan for an
# event follows exactly.

# %%
from dp_ensemble_env.reporting.score import event_outcome

model = EnsembleModel.from_series(series, DemandResponseEvent(date="2018-07-18"), n_states=12)
outcome = event_outcome(model, standard_policy(model))
print(f"{model.n_states} levels from {model.power_kw[0]:.0f} to {model.power_kw[-1]:.0f} kW")
print(f"score {outcome.score:.0f}")

# %% [markdown]
# ## Is the forecast good enough?
#
# A plan needs a forecast of the load without an event. `backtest` makes this forecast for days without an event, and
# compares it with the meter. Everything below works the same in a terminal: `dp-ensemble backtest --meter meter.csv …`.

# %%
from dp_ensemble_env.cli import main

meter = ["--meter", "meter.csv", "--unit", "kW", "--stamp", "start"]
main(["backtest", *meter, "--days", "10"])

# %% [markdown]
# ## The plan
#
# `plan` writes a page, a table, and a message in the format of OpenADR.

# %%
main(["plan", *meter, "--date", "2018-08-08", "--output", "plan"])

# %%
import csv

import matplotlib.pyplot as plt

with open("plan/dispatch.csv", newline="") as file:
    rows = list(csv.DictReader(file))
figure, axes = plt.subplots(figsize=(6, 3.5))
for column, label in (("forecast_kw", "without control"), ("setpoint_kw", "set-points")):
    axes.plot([float(row[column]) for row in rows], drawstyle="steps-post", label=label)
low, high = ([float(row[column]) for row in rows] for column in ("low_kw", "high_kw"))
axes.fill_between(range(len(rows)), low, high, step="post", alpha=0.2, color="C1", label="90 % range")
ticks = range(0, len(rows), 4)
axes.set_xticks(ticks, [rows[i]["start"][11:16] for i in ticks])
axes.set(xlabel="time of day", ylabel="power, kW (axis starts above 0)")
axes.legend()
plt.show()

# %% [markdown]
# A plan computed from readings without noise reveals them, so share it only with people who may see the meter. For a
# private plan, see *Choosing a mechanism and ε*. After the event, `dp-ensemble settle` computes delivery and payment.
