"""
A stream that changes, and a model that forgets
===============================================

A model that counts all rows alike averages over the past. With a half-life or a window it lets go of what is out of
date, exactly: its sums are those of the rows that still count. The running log score shows what that is worth.
"""

# %%
# FiveThirtyEight's average of polls on the approval of the President of the United States, day by day from 2017 to
# 2019, to be told from that day's figures of five pollsters (the set comes with river). How far each of them is from
# the average, and how much it counts there, drifts.

import datetime

import matplotlib.pyplot as plt
import numpy as np
from river.datasets import TrumpApproval

from pydirect import DirectStreamRegressor
from pydirect.plotting import LogScoreDisplay

days, X, y = [], [], []
for x, approval in TrumpApproval():
    days.append(datetime.date.fromordinal(x.pop("ordinal_date")))
    X.append(list(x.values()))
    y.append(approval)
X, y = np.array(X), np.array(y)

# %%
# `predict_then_learn` predicts each row before it learns it, and returns means, standard deviations and the log
# densities of what came.

options = {"n_basis_functions": 50, "n_first_rows": 128}
models = {
    "all rows": DirectStreamRegressor(**options),
    "half-life of 100 rows": DirectStreamRegressor(half_life=100, **options),
    "window of 150 rows": DirectStreamRegressor(window=150, **options),
}
predicted, scores = {}, {}
for name, model in models.items():
    mean, std, log_density = model.predict_then_learn(X, y)
    predicted[name], scores[name] = (mean, std), log_density
    print(f"{name}: {np.nanmean(log_density):.2f} nats per row, {model.total_weight_:.0f} rows count in the end")

# %%
# Above: the average, and where the model with a half-life expected it with a probability of 90 %, before it learned it.
# Below: log scores, averaged with a half-life of 50 rows. After the first year, the model that counts all rows falls
# behind. The one with a window is badly surprised once, soon after row 550.

mean, std = predicted["half-life of 100 rows"]
figure, (above, below) = plt.subplots(2, 1, figsize=(9, 6.6), height_ratios=(1, 1), layout="constrained")
above.fill_between(days, mean - 1.645 * std, mean + 1.645 * std, color="C1", alpha=0.3, lw=0, label="expected")
above.plot(days, y, color="black", lw=1, label="average of polls")
above.set(ylabel="approval in %", ylim=(35, 48))
above.legend()
LogScoreDisplay(list(scores.values()), names=list(scores), half_life=50).plot(below)
below.set_ylim(-2.5, 0)
plt.show()
