"""A watchman in one kibibyte, without floating point
==================================================

A sensor in a water main shall notice when something is wrong. Its processor, a Cortex-M0+, adds and multiplies
integers, and has a few kilobytes of flash to spare: enough for a model that says what flow to expect, and how far off
it may be.
"""

# %%
# Litres per second through a pipeline, hour by hour, March to May 2022 (data of Tecnojest s.r.l., part of river).
# From twenty undisturbed days the model learns what to expect after the flow one hour and one day before, at a time of
# day.

import shutil
import subprocess
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from river.datasets import WaterFlow

from pydirect import DirectRegressor, fit_quantized

stamps, flow = zip(*((x["Time"], value) for x, value in WaterFlow()), strict=True)
flow, hour = np.array(flow), np.array([stamp.hour for stamp in stamps])
X = np.column_stack([np.roll(flow, 1), np.roll(flow, 24), np.sin(hour * np.pi / 12), np.cos(hour * np.pi / 12)])
learned, later = np.arange(360, 840), np.arange(840, len(flow))
tiny = fit_quantized(DirectRegressor(), X[learned], flow[learned], max_flash=1024)

# %%
# The device reads its meter in hundredths of a litre, the sines in units of 1/1000, and answers in hundredths. The same
# integers can be computed here, so that we see what the device will say. It raises the alarm where the flow is more
# than four standard deviations from what it expects.

counts = {"counts_per_unit": [100, 100, 1000, 1000], "output_counts_per_unit": 100}
device = tiny.on_device(**counts)
mean, std = (part[:, 0] for part in device.predict(np.rint(X * counts["counts_per_unit"])))
alarm = np.abs(np.rint(100 * flow) - mean) > 4 * std
large = DirectRegressor(noise="constant").fit(X[learned], flow[learned])
quiet = later[later > 950]
for name, expected in {"the large model": large.predict(X[quiet]), "the device": mean[quiet] / 100}.items():
    print(
        f"{name}: root mean squared error of {np.sqrt(np.mean((expected - flow[quiet]) ** 2)):.2f} l/s in quiet hours"
    )
print(f"hours of alarm: {alarm[later].sum()}, of which quiet: {alarm[quiet].sum()}")

# %%
# What it costs: estimates of flash, code included, of stack and of instructions on a Cortex-M0+. On an
# emulated Cortex-M4, `bench/scripts/devices_compared.py` counts the instructions of such models.

report = tiny.report(device)
print(f"tables {report['bytes']['total']} bytes, flash {report['flash']}, stack {report['stack']}")
print(f"{report['instructions']} instructions per prediction")

# %%
# One C99 header is all that the device needs. It carries rows and the integers that Python found for them, as a
# self-test, which we run where this page is made if there is a C compiler.

with tempfile.TemporaryDirectory() as folder:
    tiny.to_c(Path(folder) / "watchman.h", prefix="watchman", **counts)
    source = (Path(folder) / "watchman.h").read_text()
    print(
        f"header of {len(source.splitlines())} lines; float or double in it: {'float' in source or 'double' in source}"
    )
    if compiler := shutil.which("cc"):
        (Path(folder) / "main.c").write_text('#include "watchman.h"\nint main(void) { return watchman_self_test(); }\n')
        subprocess.run([compiler, "-std=c99", "-Os", "main.c", "-o", "main"], cwd=folder, check=True)
        print("rows that differ from Python:", subprocess.run([Path(folder) / "main"]).returncode)

# %%
# Left: what the device expects, with four standard deviations, and the flow; dots are alarms. It notices at once that
# the main is shut, and that it is opened again. Three later alarms are sudden steps of the flow. Right: what the bytes
# are spent on.

figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.2), width_ratios=(2.6, 1), layout="constrained")
day = np.arange(len(flow)) / 24
left.fill_between(day, (mean - 4 * std) / 100, (mean + 4 * std) / 100, color="C0", alpha=0.3, lw=0, label="expected")
left.plot(day, flow, color="black", lw=1, label="flow")
left.plot(day[alarm], flow[alarm].clip(98.2), "o", color="C1", markersize=5, label="alarm")
left.set(xlabel="day of the record", ylabel="flow in litres per second", xlim=(35, len(flow) / 24), ylim=(98, 106))
left.legend(loc="upper left", ncols=3)
parts = {name.replace("_", " "): size for name, size in report["bytes"].items() if size and name != "total"}
parts["code"] = report["flash"] - report["bytes"]["total"]
right.barh(list(parts), list(parts.values()), color=["C0"] * (len(parts) - 1) + ["C4"])
right.invert_yaxis()
right.set(xlabel="bytes of flash")
plt.show()
