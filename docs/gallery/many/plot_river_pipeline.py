"""
A model that forgets, among river's
===================================

`river` learns from one row at a time: predict, see the answer, learn. `RiverRegressor` is a nonlinear model for its
pipelines, metrics and evaluations that states its uncertainty, takes rows with gaps, and forgets what is out of date.
"""

# %%
# River's drifting Friedman function: the target depends on five of ten columns, after 450 rows on other ones, and
# after 900 rows on the first ones again. Rows are dictionaries; a tenth of the values is missing here.

import random

import matplotlib.pyplot as plt
import numpy as np
from river import linear_model, preprocessing, stats, tree
from river.datasets import synth

from pydirect import DirectStreamRegressor
from pydirect.adapters import RiverRegressor


def stream():
    rng = random.Random(0)
    for x, y in synth.FriedmanDrift("gra", position=(450, 900), seed=0).take(1350):
        yield {name: value if rng.random() > 0.1 else None for name, value in x.items()}, y


# %%
# In our model a row counts half after 100 further ones. It stands in pipelines as any other model does; river's own
# need imputed columns before them.


def imputed():
    return preprocessing.StatImputer(*[(name, stats.Mean()) for name in range(10)])


models = {
    "LinearRegression": imputed() | preprocessing.StandardScaler() | linear_model.LinearRegression(),
    "HoeffdingAdaptiveTree": imputed() | tree.HoeffdingAdaptiveTreeRegressor(seed=0),
    "RiverRegressor": RiverRegressor(DirectStreamRegressor(n_basis_functions=60, half_life=100, n_first_rows=256)),
}
# %%
# Predict, then learn. With `with_dist=True` a prediction is a distribution: do 90 % of the targets lie within its
# intervals?

errors, inside = {name: [] for name in models}, []
for x, y in stream():
    for name, model in models.items():
        if name == "RiverRegressor":
            expected = model.predict_one(x, with_dist=True)
            inside.append(abs(y - expected.mu) < 1.645 * expected.sigma)
            errors[name].append(abs(y - expected.mu))
        else:
            errors[name].append(abs(y - model.predict_one(x)))
        model.learn_one(x, y)

# %%
# After a change every model is wrong for a while. This one notices, widens its intervals, and the old rows fade.

figure, (above, below) = plt.subplots(2, sharex=True, figsize=(8, 6), layout="constrained")
window, rows = np.ones(150) / 150, np.arange(150, 1351)
for name, values in errors.items():
    above.plot(rows, np.convolve(values, window, "valid"), label=name, lw=2.5 if name == "RiverRegressor" else 1.2)
above.set(ylabel="mean absolute error\nof the last 150 rows", ylim=(0, 5))
above.legend(loc="upper right")
below.plot(rows, np.convolve(inside, window, "valid"), color="C2", lw=2.5)
below.axhline(0.9, color="grey", ls=":")
below.set(xlabel="row", ylabel="share of targets in\n90 % intervals", ylim=(0, 1))
for axes in (above, below):
    for change in (450, 900):
        axes.axvline(change, color="grey", ls="--", lw=1)
plt.show()
