"""Hospitals that share a model, but no patients
================================================

Five hospitals want one model of a blood value. None of them may show a patient's row, so each sends sums over its rows,
with noise that hides every single patient (differential privacy). The model of the added sums knows the noise: where it
hides the curve, the band is wide.
"""

# %%
# What everybody may know: bounds of the inputs and of the target. They fix the basis functions, so that the sums of all
# hospitals belong together.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.base import clone

from pydirect import DirectRegressor, Fourier
from pydirect.statistics import PrivacyBudget

shared = DirectRegressor(Fourier(length_scale=[15.0]), n_basis_functions=60, random_state=1)
shared.fit_features([[20.0], [90.0]])  # ages
y_bounds = (0.0, 12.0)


# %%
# The hospitals' rows, simulated here, which stay where they are: each has patients of other ages.
def curve(age):
    return 5 + 1.5 * np.sin(age / 9) + 0.02 * (age - 50)


rng = np.random.default_rng(0)
hospitals = []
for typical_age in (30, 42, 55, 66, 78):
    age = np.clip(typical_age + 7 * rng.standard_normal(8_000), 20, 90)
    hospitals.append((age[:, None], curve(age) + rng.standard_normal(len(age))))

# %%
# What each hospital sends: sums with noise, as much as its patients' privacy budget asks for. Sums of hospitals add.
epsilons, models = (0.3, 1.0, 5.0), []
for epsilon in epsilons:
    sent = []
    for k, (X, y) in enumerate(hospitals):
        budget = PrivacyBudget(epsilon, delta=1e-6)
        sent.append(shared.private_statistics(X, y, y_bounds=y_bounds, budget=budget, random_state=k))
    model = clone(shared).fit_features([[20.0], [90.0]])
    models.append(model.fit_statistics(sum(sent)))

# %%
# One hospital alone, without privacy, knows its own ages only. All of them together know the curve, and the less noise
# they have to add (the larger ε), the better. The bands hold the curve with a probability of 90 %.
ages = np.linspace(20, 90, 300)
alone = clone(shared).fit_features([[20.0], [90.0]]).partial_fit(*hospitals[1])

figure, axes = plt.subplots(1, 4, figsize=(13, 3.6), sharey=True, layout="constrained")
titles = ["one hospital, not private", *(f"all five, ε = {epsilon:g}" for epsilon in epsilons)]
for axis, model, title in zip(axes, [alone, *models], titles, strict=True):
    mean, deviation, _ = model.predict_parts(ages[:, None])
    axis.fill_between(ages, mean - 1.645 * deviation, mean + 1.645 * deviation, alpha=0.3, label="90 % band")
    axis.plot(ages, mean, label="model")
    axis.plot(ages, curve(ages), "k--", linewidth=1, label="truth")
    axis.set(title=title, xlabel="age", ylim=(0, 10))
axes[0].set_ylabel("blood value")
axes[0].legend(loc="lower left")
plt.show()
