"""An exact network of squares beside a ReLU network
==================================================

Networks whose units square their inputs can be integrated over exactly: the ELBO of weights on 15 levels is computed,
not estimated. ReLU networks with Gaussian weights need an approximation, here that of deterministic variational
inference. Both learn Friedman's function, and so does what a network of squares has to be compared with: polynomials.
"""

# %%
# Friedman (1991): y = 10 sin(πx₁x₂) + 20(x₃ − ½)² + 10x₄ + 5x₅ with noise of variance one. The network of squares has
# two hidden layers, and so is a polynomial of degree four.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_friedman1
from sklearn.linear_model import BayesianRidge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from pydirect import DVIRegressor, QuadraticBNNRegressor

X, y = make_friedman1(2500, n_features=5, noise=1.0, random_state=0)
test_X, test_y = X[500:], y[500:]

# %%
# From 150 rows to 500. The best possible error is one, that of the noise. Friedman's function is nearly a polynomial
# of few terms, and Bayesian ridge regression on polynomials is the best of the three here. The bound of the network of
# squares has many optima: that of the best of four starts may be a worse one with more rows.

sizes = [150, 250, 500]
errors = {"squares, exact": [], "ReLU, DVI": [], "polynomials of degree 3": []}
for n in sizes:
    models = {
        "squares, exact": QuadraticBNNRegressor((8, 4)),
        "ReLU, DVI": DVIRegressor((50,), noise="constant"),
        "polynomials of degree 3": make_pipeline(StandardScaler(), PolynomialFeatures(3), BayesianRidge()),
    }
    for name, model in models.items():
        predicted = model.fit(X[:n], y[:n]).predict(test_X)
        errors[name].append(np.sqrt(np.mean((predicted - test_y) ** 2)))
        if name != "polynomials of degree 3":
            inside = np.abs(test_y - predicted) < 1.645 * model.predict(test_X, return_std=True)[1]
            print(f"{n} rows, {name}: RMSE {errors[name][-1]:.2f}, 90 % intervals hold {inside.mean():.0%}")

# %%
# What the networks of the last fits make of single columns, with the others at ½, a little beyond the unit interval
# that all rows come from. Squares leave it as polynomials do, steeply; the ReLU network goes on straight.

column = np.linspace(-0.3, 1.3, 200)
figure, axes = plt.subplots(1, 3, figsize=(11, 4.2), width_ratios=(1.1, 1, 1), layout="constrained")
for k, (name, values) in enumerate(errors.items()):
    axes[0].plot(sizes, values, "o-", color=f"C{k}", label=name)
axes[0].axhline(1, color="0.6", lw=0.8, ls="--")
axes[0].set(xscale="log", xlabel="rows", ylabel="RMSE on 2000 other rows", ylim=(0.98, 1.58))
axes[0].set_xticks(sizes, sizes)
axes[0].minorticks_off()
axes[0].legend(fontsize="small", loc="upper right")
for axis, j in zip(axes[1:], (0, 2), strict=True):
    rows = np.full((200, 5), 0.5)
    rows[:, j] = column
    truth = 10 * np.sin(np.pi * rows[:, 0] * rows[:, 1]) + 20 * (rows[:, 2] - 0.5) ** 2 + 7.5
    axis.axvspan(0, 1, color="0.93", lw=0)
    axis.plot(column, truth, color="black", ls="--", lw=1, label="truth")
    for k, name in enumerate(("squares, exact", "ReLU, DVI")):
        mean, std, _ = models[name].predict_parts(rows)
        axis.fill_between(column, mean - 1.645 * std, mean + 1.645 * std, color=f"C{k}", alpha=0.3, lw=0)
        axis.plot(column, mean, color=f"C{k}", label=f"{name}, 90 % of functions")
    axis.set(xlabel=f"$x_{j + 1}$", ylim=(0, 30))
axes[1].set_ylabel("f")
axes[1].legend(fontsize="small", loc="upper left")
plt.show()
