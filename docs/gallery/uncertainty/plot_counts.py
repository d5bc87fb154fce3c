"""Counts: when did the mines become safer?
========================================

Explosions in British coal mines killed ten miners or more 191 times between 1851 and 1962. Most years have few of them
or none, so a bell curve around the mean makes no sense. `DirectCountRegressor` models the rate behind the counts and
answers with probabilities of 0, 1, 2, … explosions.
"""

# %%
# One count per year (Jarrett, 1979, *A note on the intervals between coal-mining disasters*).

import matplotlib.pyplot as plt
import numpy as np

from pydirect import DirectCountRegressor, DirectRegressor

digits = (
    "4541043406334026335453144155342522342132211113001011003103220111010100021000110233112111123300014000100000100101"
)
explosions = np.array([int(digit) for digit in digits])
years = np.arange(1851, 1851 + len(explosions))
print(f"{explosions.sum()} explosions in {len(years)} years")

# %%
# The model learns how fast the rate changes, and whether the counts scatter more than Poisson's do. `family="auto"`
# decides that by the probability of years that are left out.

model = DirectCountRegressor().fit(years[:, None], explosions)
print(model.summary().splitlines()[-1])

# %%
# The rate and what is not known about it, and an interval for the counts themselves. An ordinary regression gives
# intervals below zero.

log_rate, std = model.predict_log_rate(years[:, None], return_std=True)
lower, upper = model.predict_interval(years[:, None], level=0.9)
gaussian = DirectRegressor(noise="constant").fit(years[:, None], explosions).predict_interval(years[:, None], level=0.9)

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), width_ratios=(2, 1), layout="constrained")
left.fill_between(years, lower - 0.5, upper + 0.5, step="mid", color="C0", alpha=0.15, label="90 % of counts")
left.fill_between(
    years, np.exp(log_rate - 1.64 * std), np.exp(log_rate + 1.64 * std), color="C0", alpha=0.4, label="90 %, rate"
)
left.plot(years, np.exp(log_rate), color="C0", label="rate (median)")
left.plot(years, gaussian[0], color="C1", linestyle="--", linewidth=1, label="90 %, Gaussian noise")
left.plot(years, gaussian[1], color="C1", linestyle="--", linewidth=1)
left.plot(years, explosions, "k.", markersize=4)
left.axhline(0, color="black", linewidth=0.5)
left.set(xlabel="year", ylabel="explosions")
left.legend(loc="upper right", fontsize="small")

# %%
# What the model expects of a year: probabilities of every count, the uncertainty of the rate included.

counts = np.arange(9)
for year, color, shift in ((1870, "C0", -0.2), (1940, "C1", 0.2)):
    probability = model.predict_distribution([[year]]).probability(counts)[0]
    right.bar(counts + shift, probability, width=0.4, color=color, label=f"{year}")
right.set(xlabel="explosions in a year", ylabel="probability")
right.legend()
plt.show()
