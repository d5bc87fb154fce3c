"""Leaving out every row without refitting
=======================================

How well would the model have predicted a patient whom it had not seen? For a Gaussian posterior the answer follows from
the fit to all patients: 442 refits for the price of one. That compares models, and makes intervals that need no
assumption on the noise.
"""

# %%
# The progression of diabetes from ten columns, by Fourier features of a kernel.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.kernel_approximation import RBFSampler
from sklearn.preprocessing import scale

from pydirect import DirectRegressor, DirectSearchCV
from pydirect.explain import LeftOutRows

X, y = load_diabetes(return_X_y=True)
X = scale(X)


def features(length_scale):
    return RBFSampler(gamma=0.5 / length_scale**2, n_components=150, random_state=0)


# %%
# Which length-scale, and how much noise? Each candidate is scored by the log density of every patient, left out of the
# fit. Candidates of one length-scale share a factorisation.

length_scales, noises = np.geomspace(1.5, 30, 9), np.geomspace(2000, 5000, 9)
grid = {"features": [features(length_scale) for length_scale in length_scales], "noise": list(noises)}
search = DirectSearchCV(DirectRegressor(), grid, cv="loo").fit(X, y)
score = search.cv_results_["mean_test_score"].reshape(9, 9)
k, best_noise = np.unravel_index(score.argmax(), score.shape)[0], search.best_params_["noise"]
print(f"best: length-scale {length_scales[k]:.1f}, noise variance {best_noise:.0f}, {score.max():.3f} nats per patient")

# %%
# Is it the same as refitting? Thirty patients, left out one by one in earnest.


def best():
    return DirectRegressor(features(length_scales[k]), noise=best_noise)


model = best().fit(X, y)
some = np.arange(0, len(y), 15)
refits = [best().fit(np.delete(X, i, axis=0), np.delete(y, i)) for i in some]
refitted = np.array([y[i] - refit.predict(X[[i]])[0] for i, refit in zip(some, refits, strict=True)])
left_out = LeftOutRows(model, X, y).residuals[some]
worst = np.abs(left_out - refitted).max()
print(f"residuals of about {refitted.std():.0f} differ by {worst:.2f} at most")

# %%
# Residuals of left-out patients, in units of their standard deviations, also make intervals: jackknife+ needs no normal
# distribution. Half of the patients judge it.

train, test = np.arange(0, len(y), 2), np.arange(1, len(y), 2)
half = best().fit(X[train], y[train])
intervals = {
    "posterior": half.predict_interval(X[test], level=0.9),
    "jackknife+": LeftOutRows(half, X[train], y[train]).predict_interval(X[test], level=0.9),
}
for method, (lower, upper) in intervals.items():
    inside = np.mean((lower <= y[test]) & (y[test] <= upper))
    print(
        f"{method}: {inside:.0%} of the other half inside 90 % intervals, which are {np.mean(upper - lower):.0f} wide"
    )

# %%
# Left: log densities of all candidates, and the best. Right: residuals by the formula and by refits, which standardise
# the target anew and differ by that.

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), width_ratios=(1.2, 1), layout="constrained")
mesh = left.pcolormesh(noises, length_scales, score, cmap="viridis", vmin=score.max() - 0.06, shading="nearest")
figure.colorbar(mesh, label="mean log density of a patient left out", extend="min")
left.plot(best_noise, length_scales[k], "*", color="C1", markersize=14, markeredgecolor="white")
left.set(xscale="log", yscale="log", xlabel="noise variance", ylabel="length-scale")
left.set_xticks([2000, 3000, 4000, 5000], ["2000", "3000", "4000", "5000"])
left.set_yticks([2, 5, 10, 20], ["2", "5", "10", "20"])
left.minorticks_off()
right.axline((0, 0), slope=1, color="black", lw=0.8)
right.plot(refitted, left_out, "o", alpha=0.7)
right.set(xlabel="residual after refitting", ylabel="residual by the formula", aspect="equal")
plt.show()
