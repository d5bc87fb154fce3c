"""More rows than memory holds
===========================

Training needs sums over rows, not the rows. They can be read block by block, on one machine or many, and forgotten:
what is kept has the size of the model, and the model is that of all rows at once.
"""

# %%
# Friedman's first function, a well-known test of regression: five of ten columns matter. Blocks of 5000 rows are made
# when they are asked for, as if read from a file, and there are never two of them in memory.

import copy
import pickle
import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_friedman1
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF

from pydirect import DirectRegressor, merge_models


def block(k):
    return make_friedman1(5000, n_features=10, noise=1.0, random_state=k)


X_test, f_test = make_friedman1(2000, n_features=10, noise=0.0, random_state=1000)


def error(model):
    return np.sqrt(np.mean((model.predict(X_test) - f_test) ** 2))


# %%
# The first 2000 rows fix the basis functions, here Fourier features whose length-scales are learned. Two machines, say,
# take every other block each. After each of its blocks a machine has a model that is ready to predict.

empty = DirectRegressor("fourier", n_basis_functions=250).fit_features(*(part[:2000] for part in block(0)))
machines = [copy.deepcopy(empty), copy.deepcopy(empty)]
rows, errors, seconds = [], [], []
for k in range(30):
    X, y = block(k)
    begin = time.process_time()
    machines[k % 2].partial_fit(X, y)
    seconds.append(time.process_time() - begin)
    if k % 2 == 0:
        rows.append(machines[0].total_weight_)
        errors.append(error(machines[0]))

# %%
# Their models add: sums over all rows are the sums of their sums.

both = merge_models(machines)
print(f"{both.total_weight_:,.0f} rows would take {both.total_weight_ * 11 * 8 / 1e6:.0f} MB")
print(f"the model with its sums takes {len(pickle.dumps(both)) / 1e6:.1f} MB, after any number of rows")
print(f"error of one machine {errors[-1]:.3f}, of both together {error(both):.3f}")

# %%
# An exact Gaussian process needs all rows at once, and time that grows with their cube, even with a kernel that is
# given.

process = GaussianProcessRegressor(RBF(1.0), alpha=0.1, optimizer=None)
few, process_seconds = [250, 500, 1000, 2000], []
for n in few:
    X, y = (part[:n] for part in block(0))
    begin = time.process_time()
    process.fit(X, y)
    process_seconds.append(time.process_time() - begin)

# %%
# Left: the error falls with the rows; both machines together know what a single one would know after all of them.
# Right: processor seconds, which are those of the machine that made this page. A block costs as much in the end as in
# the beginning.

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
left.loglog(rows, errors, "o-", markersize=4, label="one machine, block by block")
left.loglog(both.total_weight_, error(both), "D", color="C1", markersize=9, label="both machines, added")
left.set(xlabel="rows so far", ylabel="root mean squared error")
left.set_yticks([0.08, 0.1, 0.15, 0.2], ["0.08", "0.1", "0.15", "0.2"], minor=False)
left.minorticks_off()
right.loglog(5000 * np.arange(1, 31), seconds, "o", markersize=4, label="one more block of 5000 rows")
right.loglog(few, process_seconds, "s-", color="C2", label="GaussianProcessRegressor, all rows")
right.set(xlabel="rows so far", ylabel="seconds", ylim=(3e-3, 3))
left.legend()
right.legend()
plt.show()
