"""The bound climbed exactly and by draws: DIRECT beside REINFORCE and CONCRETE
============================================================================

Discrete weights have no pathwise gradient. The usual way to train them estimates gradients from draws: REINFORCE is
unbiased and noisy, CONCRETE replaces weights by continuous ones, which is less noisy and biased. For linear models the
gradient is known exactly, at the price of a single draw. This is Figure 1 of Evans & Nair (2018), made again.
"""

# %%
# A thousand rows, 20 random Fourier features of 20 inputs, weights that are −1, 0 or 1, and noise of variance one, to
# be found as well. Training sees the sums ΦᵀΦ and Φᵀy only, in all methods.

import matplotlib.pyplot as plt
import numpy as np

from pydirect import GaussianStatistics, evenly_spaced_levels, fit_mean_field
from pydirect.baselines import Concrete, Exact, Reinforce, StochasticELBO, fit_stochastic
from pydirect.direct import MeanFieldRegression
from pydirect.features import FourierFeatures

rng = np.random.default_rng(0)
features = FourierFeatures(rng.standard_normal((20, 10)), np.full(10, np.sqrt(0.1)))
phi = features.transform(rng.standard_normal((1000, 20)))
levels = evenly_spaced_levels(3, 1.0)
y = phi @ rng.choice(levels, 20) + rng.standard_normal(1000)
problem = (GaussianStatistics.from_arrays(phi, y), levels, np.full(3, -np.log(3)), [0.1, 1.0, 10.0])
model = MeanFieldRegression.of(*problem)

# %%
# All methods begin at the prior. Exact gradients permit L-BFGS, which DIRECT uses; Adam with exact gradients tells what
# of its advantage that is. The others draw weight vectors in each step. Control variates subtract the mean of the
# step's other draws, which leaves REINFORCE unbiased. Every method is given the best of three step sizes. What counts
# is the exact ELBO, evaluated between steps.

direct = fit_mean_field(*problem, optimizer="lbfgs")
estimators = {
    "Adam, exact gradient": Exact(),
    "REINFORCE, 100 draws": Reinforce(n_samples=100),
    "REINFORCE, 10 draws": Reinforce(n_samples=10),
    "REINFORCE, 100 draws, no control variate": Reinforce(n_samples=100, control="none"),
    "CONCRETE, 10 draws": Concrete(n_samples=10, temperature=1.0, final_temperature=0.1),
}
fits = {}
for name, estimator in estimators.items():
    tried = [fit_stochastic(model, estimator, n_steps=400, step=step, n_checks=200) for step in (0.1, 0.5, 2.0)]
    fits[name] = max(tried, key=lambda fit: fit.elbo[-1])
best = fit_mean_field(*problem).elbo
print(f"DIRECT's ELBO {direct.elbo:.3f} after {direct.n_iter} iterations; the package's own optimiser: {best:.3f}")
for name, fit in fits.items():
    print(f"{name}: {best - fit.elbo[-1]:.3g} nats short after {fit.steps[-1]} steps")

# %%
# How noisy a gradient is: the spread of its estimates at the start, relative to its length. Below one, a step goes
# more or less where it should.
counts = [1, 3, 10, 30, 100, 300, 1000]
kinds = {
    "REINFORCE, no control variate": lambda t: Reinforce(n_samples=t, control="none"),
    "REINFORCE": lambda t: Reinforce(n_samples=t, control="moving_average" if t == 1 else "leave_one_out"),
    "CONCRETE": lambda t: Concrete(n_samples=t),
}
noise = {}
for name, kind in kinds.items():
    noise[name] = []
    for count in counts:
        bound = StochasticELBO(model, kind(count))
        variance = bound.gradient_variance(bound.start, np.random.default_rng(0), n_repeats=30)
        noise[name].append(np.sqrt(variance.sum()) / np.linalg.norm(bound.exact_gradient(bound.start)))

# %%
# DIRECT is at rest after some thirty evaluations. CONCRETE, on a problem as easy as this, keeps up with exact gradients
# until its bias shows. REINFORCE does not come near, and without its control variate stays far away: with long steps it
# goes wrong, with short ones it takes more of them. All their steps pay for their draws as well, and noise grows with
# the number of weights: `python bench/paper/figure1.py` measures steps and seconds.

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.8), width_ratios=(1.5, 1), layout="constrained")
left.plot(np.maximum(best - direct.outcome.trace, 1e-9), color="black", lw=2.5, label="DIRECT: L-BFGS, exact gradient")
for k, (name, fit) in enumerate(fits.items()):
    left.plot(fit.steps, np.maximum(best - fit.elbo, 1e-9), color=f"C{k}", label=name)
left.set(yscale="log", xscale="symlog", xlim=(0, 400), ylim=(1e-6, None))
left.set(xlabel="steps", ylabel="nats below the best ELBO")
left.legend(fontsize="small", loc="lower left")
for name, color in zip(kinds, ("C3", "C1", "C4"), strict=True):
    right.plot(counts, noise[name], "o-", color=color, label=name)
right.axhline(1, color="0.6", lw=0.8, ls="--")
right.set(xscale="log", yscale="log", xlabel="draws per step", ylabel="noise of the gradient over its length")
right.legend(fontsize="small")
plt.show()
