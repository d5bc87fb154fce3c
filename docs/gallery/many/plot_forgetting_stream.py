"""
A stream that changes, and a model that forgets
===============================================

A model that counts all rows alike averages over the past. With a half-life or a window it lets go of what is out of
date, exactly: its sums are those of the rows that still count. The running log score shows when something has changed.
"""

# %%
# A sine of two columns. After 800 rows its sign turns; after 1600 rows the inputs move to where no row was before.

import matplotlib.pyplot as plt
import numpy as np

from pydirect import DirectStreamRegressor
from pydirect.plotting import LogScoreDisplay

rng = np.random.default_rng(0)
row = np.arange(2400)
X = rng.uniform(-2, 2, (2400, 2)) + 4 * (row >= 1600)[:, None]
f = np.sin(2 * X[:, 0]) + 0.3 * X[:, 1]
y = np.where(row < 800, f, -f) + 0.1 * rng.standard_normal(2400)

# %%
# `predict_then_learn` predicts each row before it learns it, and returns means, standard deviations and the log
# densities of what came.

options = {"n_basis_functions": 50, "n_first_rows": 128}
models = {
    "all rows": DirectStreamRegressor(**options),
    "half-life of 200 rows": DirectStreamRegressor(half_life=200, **options),
    "window of 300 rows": DirectStreamRegressor(window=300, **options),
}
scores = {}
for name, model in models.items():
    mean, std, log_density = model.predict_then_learn(X, y)
    scores[name] = log_density
    print(f"{name}: {np.nanmean(log_density):.2f} nats per row, {model.n_samples_:.0f} rows count in the end")

# %%
# All of them fall when the function changes. Those that forget are back soon; the one that counts all rows believes in
# a function halfway between both. When inputs move, the feature map is learned again, and what was learned goes along.

LogScoreDisplay(list(scores.values()), names=list(scores), half_life=50, changes=[800, 1600]).plot()
plt.ylim(-3, 1.2)
plt.show()
