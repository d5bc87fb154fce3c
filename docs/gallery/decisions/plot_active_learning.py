"""Active learning: which rows are worth a label?
================================================

Inputs are cheap, labels are not: a laboratory test, a simulation, an hour of an expert. Before anything is measured, a
model can say how much each candidate would teach it, and choose a batch whose members do not repeat each other.
"""

# %%
# A thousand mixtures that could be tested; fifteen of them, all from one corner, have been. The tests are simulated.

import matplotlib.pyplot as plt
import numpy as np

from pydirect import DirectRegressor, Nystroem
from pydirect.decisions import select_batch

rng = np.random.default_rng(0)
candidates = rng.uniform(-2, 2, (1000, 2))


def measure(x):
    return np.sin(2 * x[:, 0]) * np.cos(x[:, 1]) + 0.3 * x[:, 1] + 0.1 * rng.standard_normal(len(x))


def fit(rows):
    model = DirectRegressor(Nystroem(length_scale=1.0), n_basis_functions=200, noise=0.01)
    return model.fit(candidates[rows], values[rows])


values = measure(candidates)
tested = np.flatnonzero(candidates.max(axis=1) < 0)[:15]
model = fit(tested)

# %%
# The batch of ten that takes away most of the variance over all candidates. Each is the best given those before it, so
# that they keep away from what is known, and from each other. The ten largest deviations crowd in one corner.

batch = select_batch(model, candidates, n=10)
deviation = model.predict_parts(candidates)[1]
print(f"mean variance {np.mean(deviation**2):.3f}, less {batch.reductions.sum():.3f} after the batch")

# %%
# Again and again: fit, choose ten, test them. Beside it the same with ten at random.


def learning_curve(choose):
    errors, rows = [], tested
    for _ in range(6):
        model = fit(rows)
        errors.append(np.sqrt(np.mean((model.predict(candidates) - values) ** 2)))
        rows = np.append(rows, choose(model, np.setdiff1d(np.arange(1000), rows)))
    return errors


chosen = learning_curve(lambda model, rest: rest[select_batch(model, candidates[rest], candidates, n=10).indices])
by_chance = [learning_curve(lambda model, rest: rng.choice(rest, 10, replace=False)) for _ in range(5)]

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
shade = left.tripcolor(*candidates.T, deviation, shading="gouraud", cmap="Blues")
figure.colorbar(shade, label="deviation of f")
left.plot(*candidates[tested].T, "k.", label="tested")
left.plot(*candidates[np.argsort(-deviation)[:10]].T, "x", color="C4", markeredgewidth=2, label="largest deviations")
left.plot(*candidates[batch.indices].T, "o", color="C1", label="batch of ten")
left.set(xlabel="first ingredient", ylabel="second ingredient")
left.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)

labels = 15 + 10 * np.arange(6)
right.plot(labels, np.transpose(by_chance), color="gray", linewidth=0.7, alpha=0.6)
right.plot(labels, np.mean(by_chance, axis=0), "o-", color="gray", label="at random (mean of five)")
right.plot(labels, chosen, "o-", color="C1", label="least variance left")
right.axhline(0.1, color="black", linestyle=":", label="noise")
right.set(xlabel="labels", ylabel="root mean squared error", ylim=0)
right.legend()
plt.show()
