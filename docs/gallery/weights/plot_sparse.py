"""Which columns matter? Spike and slab beside the lasso
=====================================================

Ten measurements of diabetes patients may tell how their disease progresses, among forty columns of noise. The lasso
answers with coefficients, most of them zero. A spike-and-slab prior, under which a weight may be exactly zero, answers
with the probability that a column matters at all.
"""

# %%
# 442 patients, ten columns, and forty that have nothing to do with them.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.linear_model import BayesianRidge, LassoCV, lasso_path
from sklearn.preprocessing import StandardScaler

from pydirect import DirectRegressor, Sequential, SpikeAndSlabPrior

names = ["age", "sex", "body mass", "pressure", "cholesterol", "LDL", "HDL", "chol./HDL", "triglycerides", "glucose"]
measured, y = load_diabetes(return_X_y=True)
noise = np.random.default_rng(0).standard_normal((len(y), 40))
X = StandardScaler().fit_transform(np.hstack([measured, noise]))

# %%
# Discrete weights of ``"linear"`` features are those of the columns, on 15 levels. The posterior is stored as
# draws, vectors of levels that are zero for most columns. They have importance weights, which turn frequencies among
# draws into probabilities. The prior says that a column matters with a probability of one tenth.

model = DirectRegressor("linear", posterior=Sequential(n_draws=512, prior=SpikeAndSlabPrior(0.9))).fit(X, y)
draws = model.posterior_.weights.values(model.posterior_.codes)[:, :50]
importance = np.exp(model.posterior_.log_weights - model.posterior_.log_weights.max())
matters = np.average(draws != 0, axis=0, weights=importance)

# %%
# Beside it the lasso with a penalty chosen by cross-validation, and Bayesian ridge regression.

lasso = LassoCV(cv=10).fit(X, y)
ridge = BayesianRidge().fit(X, y)
deviation = np.sqrt(ridge.sigma_.diagonal())
for name, chosen in {
    "probability above one half": matters > 0.5,
    "nonzero in the lasso": lasso.coef_ != 0,
    "two deviations from zero in the ridge": np.abs(ridge.coef_) > 2 * deviation,
}.items():
    print(f"{name}: {chosen[:10].sum()} measurements and {chosen[10:].sum()} columns of noise")

# %%
# Left: the lasso's coefficients from strong to weak penalties, noise in grey. At the dotted line, which
# cross-validation has chosen, some noise is in. Right: coefficients of the ridge with two standard deviations, and
# below, how probable it is that each column matters. Of forty columns of noise, some fit the patients by chance; the
# model says "hardly, but perhaps".

alphas, path, _ = lasso_path(X, y - y.mean(), eps=0.01)
color = ["C0"] * 10 + ["0.6"] * 40
figure, axes = plt.subplot_mosaic(
    [["lasso", "ridge"], ["lasso", "slab"]], figsize=(11, 6), width_ratios=(1, 1.6), layout="constrained"
)
for k in range(49, -1, -1):
    axes["lasso"].plot(alphas, path[k], color=color[k], lw=1.5 if k < 10 else 0.7)
for k in (1, 2, 3, 6, 8):
    axes["lasso"].annotate(names[k], (alphas[-1], path[k, -1]), xytext=(4, -3), textcoords="offset points", fontsize=8)
axes["lasso"].axvline(lasso.alpha_, color="black", ls=":", lw=1)
axes["lasso"].set(xscale="log", xlabel="penalty of the lasso", ylabel="coefficient", xlim=(50, 0.12))

place = np.concatenate([1.7 * np.arange(10), 18 + 0.7 * np.arange(40)])
axes["ridge"].errorbar(place, ridge.coef_, 2 * deviation, fmt="none", ecolor=color)
axes["ridge"].scatter(place, ridge.coef_, s=10, color=color)
axes["ridge"].axhline(0, color="black", lw=0.5)
axes["ridge"].set(ylabel="coefficient of the ridge", xticks=[])
axes["slab"].bar(place, matters, width=[1.2] * 10 + [0.5] * 40, color=color)
axes["slab"].set(ylabel="probability of mattering", ylim=(0, 1.03), xlim=axes["ridge"].get_xlim())
axes["slab"].set_xticks([*place[:10], 32], [*names, "columns of noise"], rotation=90, fontsize=9)
axes["slab"].get_xticklabels()[-1].set_rotation(0)
plt.show()
