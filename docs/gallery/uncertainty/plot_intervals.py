"""Intervals that widen where there are no data
============================================

Carbon dioxide over Mauna Loa rises from year to year, and goes up and down with the seasons. Sixteen months in the
middle and the last year are hidden from the model. It is told nothing of seasons, so what it says about the hidden
months should be vaguer than what it says about those that it has seen.
"""

# %%
# Monthly means in parts per million, January 2014 to December 2023 (NOAA Global Monitoring Laboratory,
# https://gml.noaa.gov/ccgg/trends, public domain).

import matplotlib.pyplot as plt
import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from pydirect import DirectRegressor

co2 = np.array("""
398.04 398.27 399.91 401.51 401.96 401.43 399.27 397.18 395.54 396.16 397.40 399.08 400.18 400.55 401.74 403.34 404.15
402.97 401.46 399.11 397.82 398.49 400.27 402.06 402.73 404.25 405.06 407.60 407.90 406.99 404.59 402.45 401.23 401.79
403.72 404.64 406.36 406.66 407.54 409.22 409.89 409.08 407.33 405.32 403.57 403.82 405.31 407.00 408.15 408.52 409.59
410.45 411.44 410.99 408.90 407.16 405.71 406.19 408.21 409.27 411.03 411.96 412.18 413.54 414.86 414.15 411.96 410.17
408.76 408.74 410.47 411.97 413.59 414.32 414.71 416.42 417.28 416.58 414.58 412.75 411.49 411.48 413.10 414.23 415.49
416.72 417.61 419.01 419.09 418.92 416.90 414.42 413.26 413.90 414.97 416.67 418.13 419.24 418.76 420.19 420.97 420.94
418.85 417.15 415.91 415.74 417.47 418.99 419.48 420.30 420.98 423.36 424.00 423.68 421.83 419.68 418.51 418.82 420.46
421.86
""".split(), dtype=float)  # fmt: skip
time = 2014 + (np.arange(len(co2)) + 0.5) / 12
hidden = ((time > 2018.2) & (time < 2019.54)) | (time > 2023)
print(f"{(~hidden).sum()} months seen, {hidden.sum()} hidden")

# %%
# Beside our model stands a Gaussian process with the usual squared exponential kernel. Both learn a kernel from the
# data; ours has a linear part besides.

kernel = ConstantKernel(1.0, (1e-3, 1e3)) * RBF(0.3, (0.01, 100)) + WhiteKernel(0.01, (1e-5, 1))
models = {
    "DirectRegressor": DirectRegressor(),
    "GaussianProcessRegressor, squared exponential kernel": GaussianProcessRegressor(kernel, normalize_y=True),
}
for name, model in models.items():
    mean, std = model.fit(time[~hidden, None], co2[~hidden]).predict(time[:, None], return_std=True)
    inside = np.abs(co2 - mean)[hidden] < 1.96 * std[hidden]
    print(f"{name}: 95 % intervals of ±{1.96 * np.median(std[~hidden]):.1f} ppm at months that were seen,")
    print(f"    of up to ±{1.96 * std[hidden].max():.1f} ppm at hidden ones, with {inside.mean():.0%} of these inside")

# %%
# In the gap, our band follows the trend and is about as wide as the seasons, and beyond the last month it keeps
# growing. The other one is as wide as the whole record varies, the trend included, and its mean goes back to the
# average. With a periodic kernel a Gaussian process would beat both; that is for those who know that there are seasons.

line = np.linspace(2014, 2025, 1001)
figure, axes = plt.subplots(2, 1, figsize=(9, 6.4), sharex=True, sharey=True, layout="constrained")
for axis, (name, model) in zip(axes, models.items(), strict=True):
    mean, std = model.predict(line[:, None], return_std=True)
    axis.fill_between(line, mean - 1.96 * std, mean + 1.96 * std, color="C0", alpha=0.25, lw=0, label="95 % interval")
    axis.plot(line, mean, color="C0", lw=1, label="mean")
    axis.plot(time[~hidden], co2[~hidden], "o", color="black", markersize=3, label="seen")
    axis.plot(time[hidden], co2[hidden], "D", color="C1", markersize=4, fillstyle="none", label="hidden")
    axis.set(title=name, ylabel="CO₂ in ppm", xlim=(2014, 2025))
axes[1].set_xlabel("year")
axes[0].legend(loc="upper left", ncols=2)
plt.show()
