"""Moment propagation learns where the noise is
=============================================

A network that is trained by deterministic variational inference may have two outputs: the mean of the target, and the
logarithm of its noise variance. Both are uncertain, and predictions say so: one band for functions, a wider one for
measurements. This is the set on which Wu et al. (2019) show it.
"""

# %%
# 500 points with the mean −(x + ½) sin 3πx and a standard deviation of 0.45 (x + ½)², which is next to nothing on the
# left and as large as the function on the right.

import matplotlib.pyplot as plt
import numpy as np

from pydirect import DVIRegressor

rng = np.random.default_rng(0)


def mean_of(x):
    return -(x + 0.5) * np.sin(3 * np.pi * x)


def deviation_of(x):
    return 0.45 * (x + 0.5) ** 2


def draw(n):
    x = rng.uniform(-0.5, 0.5, n)
    return x[:, None], mean_of(x) + deviation_of(x) * rng.standard_normal(n)


X, y = draw(500)
test_X, test_y = draw(5000)

# %%
# The network with one noise variance, and the one whose noise is an output. What the truth itself scores on fresh data
# cannot be beaten.

models = {
    "one variance": DVIRegressor((50,), noise="constant"),
    "variance as an output": DVIRegressor((50,), noise="varying"),
}
for name, model in models.items():
    model.fit(X, y)
    lower, upper = model.predict_interval(test_X, level=0.9)
    inside = (lower < test_y) & (test_y < upper)
    halves = [inside[half].mean() for half in (test_X[:, 0] < 0, test_X[:, 0] >= 0)]
    score = model.log_predictive_density(test_X, test_y).mean()
    print(f"{name}: {score:.2f} nats per row; 90 % intervals hold {halves[0]:.0%} on the left, {halves[1]:.0%} right")
z = (test_y - mean_of(test_X[:, 0])) / deviation_of(test_X[:, 0])
truth = (-0.5 * z**2 - np.log(deviation_of(test_X[:, 0])) - 0.5 * np.log(2 * np.pi)).mean()
print(f"the truth: {truth:.2f} nats per row")

# %%
# Left and middle: 90 % of functions, dark, and of measurements, light. Right: the standard deviation of the noise
# beside the true one, on a logarithmic axis. Right of the data both bands widen. Left of them the network goes on as
# sure as it was there: it knows no more than what its straight pieces continue.

grid = np.linspace(-0.7, 0.7, 300)
figure, axes = plt.subplots(1, 3, figsize=(11, 4.2), width_ratios=(1, 1, 0.9), layout="constrained")
for k, (axis, (name, model)) in enumerate(zip(axes, models.items(), strict=False)):
    lower, upper = model.predict_interval(grid[:, None], level=0.9)
    mean, std, noise = model.predict_parts(grid[:, None])
    axis.fill_between(grid, lower, upper, color=f"C{k}", alpha=0.2, lw=0)
    axis.fill_between(grid, mean - 1.645 * std, mean + 1.645 * std, color=f"C{k}", alpha=0.5, lw=0)
    axis.plot(X[:, 0], y, ".", color="black", markersize=2.5)
    axis.set(title=name, xlabel="x", ylim=(-2.2, 2.2), xlim=(-0.7, 0.7))
    axes[2].plot(grid, noise, color=f"C{k}", label=name)
inside = np.abs(grid) < 0.5
axes[2].plot(grid[inside], deviation_of(grid[inside]), color="black", ls="--", lw=1, label="truth")
axes[2].set(yscale="log", xlabel="x", ylim=(1e-3, 3), xlim=(-0.7, 0.7), title="deviation of the noise")
axes[2].legend(fontsize="small", loc="lower right")
axes[0].set_ylabel("y")
plt.show()
