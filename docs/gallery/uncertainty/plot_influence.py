"""Why this prediction? Columns and rows that made it
==================================================

A patient's diabetes is predicted to progress faster than the average. Shapley values say which columns of X made the
difference, to the mean and to its uncertainty; exact leave-one-out effects say which patients of the training data did.
Neither needs a refit.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes

from pydirect import DirectRegressor
from pydirect.explain import RowInfluence, shapley_values
from pydirect.plotting import RowInfluenceDisplay, ShapleyDisplay

X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
names = {"bp": "blood pressure", "s1": "cholesterol", "s2": "LDL", "s3": "HDL", "s4": "cholesterol/HDL"}
X = X.rename(columns={**names, "s5": "log triglycerides", "s6": "glucose"})
model = DirectRegressor("fourier", n_basis_functions=200, noise="constant", target_transform=None, random_state=0).fit(
    X, y
)
patient = X.iloc[[int(np.argmax(model.predict(X)))]]

# %%
# From the average patient to this one: each bar is what one column adds to the predicted progression, averaged over all
# orders in which columns could be told. Of ten columns all coalitions are summed, so the values are exact; whiskers
# are the posterior standard deviation of each contribution. On the right, the same for the variance: the farther from
# the average patient in a column, the less is known. Rows of your own choice can take the average patient's place.
figure, axes = plt.subplots(1, 2, figsize=(13, 5), layout="constrained")
ShapleyDisplay(shapley_values(model, patient)).plot(axes[0], target_name="predicted progression")
ShapleyDisplay(shapley_values(model, patient, of="variance")).plot(axes[1], target_name="predictive variance")
plt.show()

# %%
# Which patients taught the model this? Effects of each on the prediction, exact with the kernel and the noise held.
# Cook's distance ranks all rows by what they did to the whole model: those far out deserve a second look.
rows = RowInfluence(model, X, y)
figure, axes = plt.subplots(1, 2, figsize=(13, 4), layout="constrained")
effects = rows.leave_one_out(patient)
labels = [f"patient {i}" for i in X.index]
RowInfluenceDisplay(effects, labels=labels).plot(axes[0], target_name="predicted progression")
axes[1].scatter(rows.leverage_, rows.residual_, s=8 + 4000 * rows.cooks_distance_, color="#0072B2", alpha=0.5, lw=0)
axes[1].set(xlabel="leverage", ylabel="residual", title="all patients, by Cook's distance")
plt.show()

# %%
# Groups are as exact: the ten patients most like this one, taken out together.
closest = np.argsort(((X - patient.iloc[0]) ** 2 / X.var()).sum(axis=1).to_numpy())[:10]
group = rows.leave_out(closest, patient)
print(f"without its ten nearest patients: {-group.mean[0]:+.1f} in the mean, {-group.std[0]:+.2f} in its deviation")
