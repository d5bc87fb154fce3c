"""Finding the lowest point in thirty trials
=========================================

Optuna tries settings one after another, each an experiment that may take hours. `DirectSampler` chooses every one by a
model of all results so far: where it expects an improvement, weighed by what it does not know yet.
"""

# %%
# A landscape with three equally deep valleys, Branin's function, stands for the experiment. Settings may also be
# integers, categories, on a logarithmic scale, or depend on each other: just call Optuna's `suggest_…`.

import matplotlib.pyplot as plt
import numpy as np
import optuna

from pydirect.adapters import DirectSampler


def landscape(x, y):
    return (y - 5.1 / (4 * np.pi**2) * x**2 + 5 / np.pi * x - 6) ** 2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(x) + 10


def experiment(trial):
    return landscape(trial.suggest_float("x", -5, 10), trial.suggest_float("y", 0, 15))


# %%
# A seed makes the study repeatable. The first ten trials spread over the whole range; after them, the model asks.

optuna.logging.set_verbosity(optuna.logging.WARNING)
study = optuna.create_study(sampler=DirectSampler(seed=0))
study.optimize(experiment, n_trials=30)
print(f"lowest value {study.best_value:.5f} at {study.best_params}")

# %%
# Other samplers of Optuna, with three seeds each.

samplers = {"random": optuna.samplers.RandomSampler, "TPE": optuna.samplers.TPESampler}
rivals = {name: [optuna.create_study(sampler=sampler(seed=s)) for s in range(3)] for name, sampler in samplers.items()}
for name in rivals:
    for rival in rivals[name]:
        rival.optimize(experiment, n_trials=30)

# %%
# Left: the landscape and the trials, numbered. Open circles are the first ten; after a look around, the others gather
# in the valleys. Right: how far the best trial so far is above the lowest value there is, 0.397887.

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
x, y = np.meshgrid(np.linspace(-5, 10, 200), np.linspace(0, 15, 200))
left.contourf(x, y, np.log(landscape(x, y)), 20, cmap="Blues", alpha=0.8)
places = np.array([[trial.params["x"], trial.params["y"]] for trial in study.trials])
left.plot(*places[:10].T, "o", color="black", fillstyle="none")
left.plot(*places[10:].T, "o", color="C1", markersize=4)
for k, place in enumerate(places):
    left.annotate(str(k), place, xytext=(4, 3), textcoords="offset points", fontsize=7)
left.set(xlabel="x", ylabel="y")


def distances(study):
    return np.minimum.accumulate([trial.value for trial in study.trials]) - 0.397887


for (name, studies), color in zip(rivals.items(), ("gray", "C4"), strict=True):
    for k, rival in enumerate(studies):
        right.step(range(1, 31), distances(rival), color=color, linewidth=1, label=None if k else name)
right.step(range(1, 31), distances(study), color="C1", linewidth=2, label="DirectSampler")
right.axvline(10, color="black", linewidth=0.5, linestyle=":")
right.set(xlabel="trials", ylabel="above the lowest value", yscale="log")
right.legend(loc="lower left")
plt.show()
