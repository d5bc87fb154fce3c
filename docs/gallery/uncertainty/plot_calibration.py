"""Are the intervals right? Calibration beside a Gaussian process and boosted trees
================================================================================

An interval of 90 % should hold nine of ten new values. Three models predict how diabetes progresses in patients that
they have not seen; a curve below the diagonal belongs to a model that claims to know more than it does.
"""

# %%
# Each half of the patients is predicted by models of the other half.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pydirect import DirectRegressor
from pydirect.metrics import interval_score, pit
from pydirect.plotting import CalibrationDisplay

X, y = load_diabetes(return_X_y=True)
halves = KFold(2, shuffle=True, random_state=0)

# %%
# `DirectRegressor` and the Gaussian process predict distributions. `pit` is their probability of less than what was
# observed: evenly spread between 0 and 1, if a model is calibrated.

kernel = 1.0 * RBF(3.0, (0.1, 100)) + WhiteKernel(0.5, (0.01, 10))
process = make_pipeline(StandardScaler(), GaussianProcessRegressor(kernel, normalize_y=True))
below, ends = {}, {}
for name, model in {"DirectRegressor": DirectRegressor(), "Gaussian process": process}.items():
    mean, std = np.empty_like(y), np.empty_like(y)
    for train, test in halves.split(X):
        mean[test], std[test] = clone(model).fit(X[train], y[train]).predict(X[test], return_std=True)
    below[name], ends[name] = pit(y, (mean, std)), (mean - 1.645 * std, mean + 1.645 * std)

# %%
# Boosted trees are fitted once for every quantile, seven times here. The probability of less than what was observed is
# read off between these quantiles.

quantiles = np.array([0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95])
trees = [HistGradientBoostingRegressor(loss="quantile", quantile=q, max_iter=50) for q in quantiles]
predicted = np.sort([cross_val_predict(model, X, y, cv=halves) for model in trees], axis=0)
below["boosted trees"] = np.array([np.interp(y[i], predicted[:, i], quantiles, 0, 1) for i in range(len(y))])
ends["boosted trees"] = predicted[0], predicted[-1]

# %%
# On the left, the first two are where chance could put a calibrated model. Fewer values than promised lie between the
# trees' quantiles, and outside of the outermost two, trees say nothing. On the right, intervals of 90 % for some
# patients. The interval score is their width, plus twenty times how far the patients outside are away: less is better.

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.8), width_ratios=(1, 1.3), layout="constrained")
for name, values in below.items():
    CalibrationDisplay(values, name=name).plot(left)
patients = np.argsort(ends["DirectRegressor"][0])[:: len(y) // 24]
for k, (name, (lower, upper)) in enumerate(ends.items()):
    at = np.arange(len(patients)) + 0.25 * (k - 1)
    right.vlines(at, lower[patients], upper[patients], color=f"C{k}", lw=2.5, alpha=0.7, label=name)
    inside = np.mean((lower <= y) & (y <= upper))
    score = interval_score(y, lower, upper, level=0.9)
    print(f"{name}: {inside:.0%} inside, {np.mean(upper - lower):.0f} wide, score {score:.0f}")
right.plot(y[patients], "D", color="black", markersize=4, label="observed")
right.set(xlabel="patients, by prediction", ylabel="progression of diabetes", xticks=[])
right.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
plt.show()
