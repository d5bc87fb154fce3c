"""Thompson sampling: functions drawn from a model say where to measure next
=========================================================================

A fitted model does not know one function, but many that agree with the measurements. Draw a few of them, measure where
each is largest, and fit again: where draws disagree they explore, and where they agree they settle on the maximum.
"""

# %%
# A function that is costly to measure, with noise: five measurements are all that we begin with. The curve is
# Forrester's test function, turned upside down, so that its maximum is at 0.757.
import matplotlib.pyplot as plt
import numpy as np

from pydirect import DirectRegressor, Nystroem
from pydirect.decisions import thompson_batch

rng = np.random.default_rng(1)
grid = np.linspace(0, 1, 401)[:, None]


def truth(x):
    return -((6 * x[:, 0] - 2) ** 2) * np.sin(12 * x[:, 0] - 4)


def measure(x):
    return truth(x) + 0.5 * rng.standard_normal(len(x))


x = np.array([[0.0], [0.2], [0.4], [0.6], [1.0]])
y = measure(x)

# %%
# Each round draws functions from the posterior and measures where four of them are largest, all different. A draw is an
# ordinary function: it can be evaluated anywhere, at any time, and has a gradient, ``functions[0].gradient(x)``.
rounds = []
for _ in range(4):
    model = DirectRegressor(Nystroem(length_scale=0.1), noise=0.25).fit(x, y)
    functions = model.sample_functions(300, random_state=rng)
    batch = grid[thompson_batch(functions(grid), 4)]
    rounds.append((x, y, functions, batch))
    x, y = np.vstack([x, batch]), np.append(y, measure(batch))

best = grid[model.predict(grid).argmax(), 0]
print(f"{len(x)} measurements; the maximum is expected at {best:.3f}, and is at {grid[truth(grid).argmax(), 0]:.3f}")

# %%
# Above: measurements, a few draws, and crosses where four of them are largest. Below: where each of 300 draws has its
# maximum: the posterior of the position of the maximum itself, which narrows from round to round.
figure, axes = plt.subplots(
    2, 4, figsize=(13, 5), sharex=True, sharey="row", height_ratios=(3, 1), layout="constrained"
)
for k, (seen, values, functions, batch) in enumerate(rounds):
    above, below = axes[:, k]
    above.plot(grid[:, 0], functions[:25](grid), color="C0", alpha=0.25, linewidth=1)
    above.plot(grid[:, 0], truth(grid), color="black", linewidth=1.5, linestyle="--", label="truth")
    above.plot(seen[:, 0], values, "o", color="black", markersize=5, label="measured")
    tops = functions[:4](batch).diagonal()
    above.plot(batch[:, 0], tops, "x", color="C1", markersize=8, markeredgewidth=2, label="measured next")
    above.set(title=f"round {k + 1}: {len(seen)} measurements", ylim=(-18, 14))
    below.hist(grid[functions.argmax(grid), 0], bins=np.linspace(0, 1, 41), color="C1", alpha=0.7)
    below.set(xlabel="x", yticks=[], ylim=(0, 160))
axes[0, 0].legend(loc="lower left", fontsize="small")
axes[0, 0].set_ylabel("f(x)")
axes[1, 0].set_ylabel("maxima")
plt.show()
