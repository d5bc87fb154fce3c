"""Two weights that know of each other
===================================

Two columns that are nearly the same share one effect: where one weight is larger, the other must be smaller. With
fifteen levels each, the posterior of two weights has 225 values and can be listed. Beside it stand three posteriors
that also work for two thousand weights.
"""

# %%
# Cholesterol and LDL of 60 diabetes patients, and how their disease progresses.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.preprocessing import scale

from pydirect import GaussianPrior, GaussianStatistics, fit_mean_field, fit_mixture
from pydirect.direct import fit_sequential
from pydirect.testing import enumerate_log_evidence, enumerate_posterior

X, y = load_diabetes(return_X_y=True)
columns, target = scale(X[:60, [4, 5]]), scale(y[:60])
print(f"correlation of the columns {np.corrcoef(columns.T)[0, 1]:.2f}")

# %%
# All three need the sums over rows only. Levels are −7 to 7, which fit into four bits, times 0.13; the noise is given.

statistics = GaussianStatistics.from_arrays(columns, target)
levels = 0.13 * np.arange(-7, 8)
log_prior = GaussianPrior().log_mass(levels / 0.5)
problem = (statistics, levels, log_prior, [0.9])

exact = enumerate_posterior(*problem).weight_probability
evidence = enumerate_log_evidence(*problem)
mean_field = fit_mean_field(*problem)
mixture = fit_mixture(*problem, n_components=5)
sequential = fit_sequential(
    statistics,
    0.9,
    0.25,
    level_scales="shared",
    levels=levels / 0.5,
    log_prior=log_prior,
    n_draws=4096,
    draws="independent",
)


# %%
# Probabilities of the 225 pairs of levels, with contours of the exact ones. Weights of the factorised posterior are
# independent, so it keeps to the middle of the ridge and is too sure of both. A mixture of five such covers more of the
# ridge. The sequential posterior draws one weight, then the other given the first, and is all but exact for two. What a
# posterior loses shows in its bound on the log evidence.


def product(q):
    return np.outer(q[0], q[1])


drawn = np.zeros((15, 15))
np.add.at(drawn, tuple(sequential.codes.T), 1 / sequential.n_draws)
tables = {
    "all 225 values": (exact.reshape(15, 15), evidence),
    "factorised": (product(mean_field.weights.q), mean_field.elbo),
    "mixture of five": (
        sum(a * product(q) for a, q in zip(mixture.alpha, mixture.component_q, strict=True)),
        mixture.elbo,
    ),
    "sequential, from draws": (drawn, sequential.elbo),
}
figure, axes = plt.subplots(1, 4, figsize=(13, 3.9), sharex=True, sharey=True, layout="constrained")
for axis, (name, (table, bound)) in zip(axes, tables.items(), strict=True):
    axis.imshow(table.T, origin="lower", cmap="Blues", vmin=0, vmax=exact.max(), extent=2 * (-7.5 * 0.13, 7.5 * 0.13))
    axis.contour(
        levels, levels, exact.reshape(15, 15).T, exact.max() * np.array([0.05, 0.5]), colors="C1", linewidths=1
    )
    axis.set(
        title=f"{name}\n{abs(evidence - bound):.2f} nats lost" if bound != evidence else name,
        xlabel="weight of cholesterol",
    )
axes[0].set_ylabel("weight of LDL")
plt.show()
