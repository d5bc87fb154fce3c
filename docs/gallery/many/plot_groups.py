"""Fifty chicks, some of them weighed only twice
=============================================

One model for all chicks misses that some grow faster; a model for each alone knows too little. `fit_groups` gives each
chick a function of its own near that of all: with few weighings a chick is taken to be like the others, as far as these
differ.
"""

# %%
# Weights of fifty chicks in their first three weeks, on four diets (M. J. Crowder and D. J. Hand, *Analysis of Repeated
# Measures*, 1990; the set comes with river). Of six chicks the model gets a few weighings only.

import matplotlib.pyplot as plt
import numpy as np
from river.datasets import ChickWeights

from pydirect import DirectRegressor, fit_groups

rows = [(x["time"], x["chick"], weight) for x, weight in ChickWeights()]
day, chick, weight = np.array(rows, dtype=float).T
last_day = {7: 2, 24: 2, 21: 6, 35: 6, 13: 10, 48: 10}
given = day <= np.array([last_day.get(label, 21) for label in chick])
X = day[:, None]

# %%
# Weights grow by percentages, so their logarithms are modelled.

model = DirectRegressor()
chicks = fit_groups(model, X[given], np.log(weight[given]), chick[given])
together = DirectRegressor().fit(X[given], np.log(weight[given]))
later = ~given
mean, std = chicks.predict(X[later], chick[later], return_std=True)
for name, expected in {"chicks": mean, "one model for all": together.predict(X[later])}.items():
    print(f"{name}: later weights are off by {np.mean(np.abs(np.exp(expected) / weight[later] - 1)):.0%} on average")

# %%
# Dots were given, diamonds were not. Bands hold 90 % of a chick's weights; the grey one is that of a chick that was
# never weighed, which deviates by as much on its first day as later. After two weighings much is open; six or ten days
# tell more. Chick 24 all but stopped growing on its sixth day, which its band, made of the other chicks, does not hold.

days = np.linspace(0, 21, 100)
figure, axes = plt.subplots(2, 3, figsize=(11, 6.4), sharex=True, sharey=True, layout="constrained")
lowest, highest = chicks.new_group.predict_interval(days[:, None], level=0.9)
for axis, (label, end) in zip(axes.T.flat, last_day.items(), strict=True):
    own = chick == label
    lower, upper = chicks[label].predict_interval(days[:, None], level=0.9)
    axis.fill_between(days, np.exp(lowest), np.exp(highest), color="0.85", lw=0, label="any chick")
    axis.fill_between(days, np.exp(lower), np.exp(upper), color="C0", alpha=0.4, lw=0, label="this chick")
    axis.plot(days, np.exp(chicks[label].predict(days[:, None])), color="C0")
    axis.plot(day[own & given], weight[own & given], "o", color="black", markersize=4)
    axis.plot(day[own & later], weight[own & later], "D", color="C1", markersize=4, fillstyle="none")
    axis.set(title=f"chick {label}, weighed until day {end}", yscale="log", ylim=(30, 450))
    axis.set_yticks([50, 100, 200, 400], ["50", "100", "200", "400"])
    axis.minorticks_off()
axes[0, 0].legend(loc="upper left")
for axis in axes[1]:
    axis.set_xlabel("day")
for axis in axes[:, 0]:
    axis.set_ylabel("weight in grams")
plt.show()
