"""How long, and in whose hands? Survival curves and effects of groups
====================================================================

Machines wear out, and most of them have not yet when the study ends; firms that run them differ in ways that no column
says. One model of the times takes what is known of machines that still run, another the firms as groups.
"""

import matplotlib.pyplot as plt
import numpy as np

from pydirect import DirectMixedRegressor, DirectSurvivalRegressor
from pydirect.plotting import RandomEffectsDisplay, SurvivalDisplay

rng = np.random.default_rng(0)
load, age = rng.uniform(0, 1, 400), rng.uniform(0, 10, 400)
lifetime = np.exp(3.0 - 1.5 * load**2 - 0.1 * age + 0.3 * rng.standard_normal(400))
end = rng.uniform(0, 30, 400)  # of the study, after the machine has entered it
failed = lifetime <= end
X = np.column_stack([load, age])
print(f"{failed.mean():.0%} of the machines have failed")

# %%
# Machines that still run count with what is known: they failed later than the study ended. The bands are what is not
# known of the function; the curves average over it. The last machine is older than any in the study.

model = DirectSurvivalRegressor().fit(X, np.minimum(lifetime, end), event=failed)
machines = {"half load, new": [0.5, 0.0], "full load, new": [1.0, 0.0], "full load, 15 years old": [1.0, 15.0]}
SurvivalDisplay.from_estimator(model, list(machines.values()), names=list(machines), time_name="time (months)")
plt.show()

# %%
# Repair costs at 30 firms. The fewer machines a firm has, the closer its effect lies to zero and the
# wider its interval. Most firms cannot be told from the average.

firm = rng.choice(30, 400, p=rng.dirichlet(np.full(30, 2.0)))
costs = 2.0 + np.sin(3 * load) + 0.4 * rng.standard_normal(30)[firm] + 0.8 * rng.standard_normal(400)
mixed = DirectMixedRegressor().fit(X, costs, np.array([f"firm {number}" for number in firm]))
print(mixed.summary().splitlines()[-1])
RandomEffectsDisplay.from_estimator(mixed, target_name="1000 euros")
plt.show()
