"""Probabilities of classes, and sets that hold the right one
==========================================================

Italian wines of three growers, told apart by two of their chemical measurements. Where growers overlap, a class is a
guess, and a model should say so: by its probabilities, or by a set that names as many classes as it takes to be right
nine times in ten.
"""

# %%
# 178 wines. The model learns from two thirds of them, the others judge it.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from pydirect import DirectClassifier

wine = load_wine(as_frame=True)
X, y = wine.data[["alcohol", "proline"]].to_numpy(), wine.target.to_numpy()
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.35, random_state=0, stratify=y)
model = DirectClassifier().fit(X_train, y_train)
print(f"accuracy {model.score(X_test, y_test):.0%}, log loss {log_loss(y_test, model.predict_proba(X_test)):.2f}")

# %%
# The frequency with which sets shall hold the right class is chosen when they are asked for. Sets of one class are an
# answer, larger ones say what is still open.

for coverage in (0.8, 0.9, 0.95):
    sets = model.predict_set(X_test, coverage=coverage)
    held = sets[np.arange(len(y_test)), y_test].mean()
    print(f"asked for {coverage:.0%}: sets of {sets.sum(axis=1).mean():.2f} classes, {held:.0%} with the right one")

# %%
# Left: colours mixed by the probabilities of the classes, with lines where the most probable one has 70 and 90 %.
# Right: the sets of 90 %. Where two colours mix, both growers are in the set. To the upper left, where there are no
# wines, the model goes on as it does inside: two columns are little to tell it that it should not.

a, b = np.meshgrid(np.linspace(10.5, 15.5, 200), np.linspace(100, 1900, 200))
grid = np.column_stack([a.ravel(), b.ravel()])
colors = np.array([[0.0, 0.45, 0.70], [0.84, 0.37, 0.0], [0.0, 0.62, 0.45]])
probability = model.predict_proba(grid)
sets = model.predict_set(grid, coverage=0.9)
size = sets.sum(axis=1)

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.8), sharex=True, sharey=True, layout="constrained")
view = {"origin": "lower", "extent": (10.5, 15.5, 100, 1900), "aspect": "auto"}
left.imshow((0.35 + 0.65 * probability @ colors).reshape(200, 200, 3), **view)
left.contour(a, b, probability.max(axis=1).reshape(a.shape), [0.7, 0.9], colors="white", linewidths=0.8)
paint = (sets @ colors) / size[:, None]
right.imshow((0.35 + 0.65 * paint).reshape(200, 200, 3), **view)
right.contour(a, b, size.reshape(a.shape), [1.5, 2.5], colors="white", linewidths=1.5)
for k, marker in enumerate("osD"):
    for axis in (left, right):
        axis.plot(*X_test[y_test == k].T, marker, color=colors[k], markeredgecolor="white", label=f"grower {k + 1}")
left.set(xlabel="alcohol in % by volume", ylabel="proline", title="probability of the classes")
right.set(xlabel="alcohol in % by volume", title="sets that hold the right class nine times in ten")
left.legend(loc="upper left", frameon=True)
plt.show()
