"""Bandits: learning which headline to show, and when
====================================================

A page can show one of three headlines, and only sees whether the one that it showed was read. A contextual bandit
learns from that which headline works at which hour, and wastes few visitors on finding out. `LinearBandit` needs no
rates of learning or exploration: it tries what it is uncertain of.
"""

# %%
# Visitors are simulated. What nobody knows: how likely they are to read each headline, hour by hour.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.preprocessing import SplineTransformer

from pydirect.decisions import LinearBandit

headlines = ["news", "sports", "recipes"]


def read_rates(hour):
    peaks = np.array([8.0, 20.0, 13.0])
    distance = np.abs((hour[:, None] - peaks + 12) % 24 - 12)
    return 0.1 + np.array([0.5, 0.4, 0.3]) * np.exp(-0.5 * (distance / 3) ** 2)


# %%
# Splines over the day are the bandit's features: of each headline it learns a curve. Visitors come ten at a time; the
# bandit decides, and learns what happened. It adds one and a half deviations to what it expects, somewhat more than by
# default, so that bad luck with the first visitors makes it give up no headline.

rng = np.random.default_rng(0)
hours = rng.uniform(0, 24, (4000, 1))
rates = read_rates(hours[:, 0])
reads = rng.random(rates.shape) < rates

splines = SplineTransformer(n_knots=7, extrapolation="periodic").fit(np.linspace(0, 24, 7)[:, None])
bandit = LinearBandit(headlines, features=splines, exploration=1.5)
shown = np.empty(4000, dtype=int)
for visitors in np.arange(4000).reshape(-1, 10):
    decisions = bandit.decide(hours[visitors])
    shown[visitors] = [headlines.index(headline) for headline in decisions]
    bandit.learn(hours[visitors], decisions, reads[visitors, shown[visitors]])

# %%
# Left: what the bandit believes (bands of two standard deviations) and the truth (dashed). It is sure where it matters:
# of the best headline at each hour. Right: reads that were lost against a page that always knew the best headline.

day = np.linspace(0, 24, 200)
mean, std = bandit.predict(day[:, None], return_std=True)
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
for arm, color in enumerate(["C0", "C1", "C2"]):
    left.fill_between(day, (mean - 2 * std)[:, arm], (mean + 2 * std)[:, arm], color=color, alpha=0.25)
    left.plot(day, mean[:, arm], color=color, label=headlines[arm])
    left.plot(day, read_rates(day)[:, arm], "--", color=color)
left.set(xlabel="hour", ylabel="probability of being read", xlim=(0, 24), ylim=(-0.05, 0.8), xticks=range(0, 25, 4))
left.legend()

best = rates.max(axis=1)
right.plot(np.cumsum(best - rates.mean(axis=1)), color="gray", label="at random")
right.plot(np.cumsum(best - rates[:, np.argmax(rates.mean(axis=0))]), color="C4", label="best headline, all day")
right.plot(np.cumsum(best - rates[np.arange(4000), shown]), color="C0", label="bandit")
right.set(xlabel="visitors", ylabel="expected reads lost")
right.legend()
plt.show()
