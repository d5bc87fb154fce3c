"""Five hundred models in one call
===============================

A photograph is cut into 500 tiles, and seven of ten pixels are thrown away. Each tile gets a model of its own, of about
thirty pixels, too few to learn a kernel and a noise from. `fit_groups` fits all of them at once, and lets every tile
know what is common to all.
"""

# %%
# The Summer Palace in Beijing, a photograph that comes with scikit-learn, in grey and at half its size. A model knows a
# pixel's place in its tile, and not where the tile is.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image

from pydirect import DirectRegressor, fit_groups

photo = load_sample_image("china.jpg")[:400, :500].mean(axis=2)
grey = photo.reshape(200, 2, 250, 2).mean(axis=(1, 3))
row, column = np.indices(grey.shape)
place = np.column_stack([(row % 10).ravel(), (column % 10).ravel()])
tile = (row // 10 * 25 + column // 10).ravel()
value = grey.ravel()
known = np.random.default_rng(0).random(value.size) < 0.3
print(f"{len(np.unique(tile))} tiles, {known.sum() / 500:.0f} known pixels each")

# %%
# One call. What is learned from all tiles together: the kernel, how much tiles differ, and how the noise does.

tiles = fit_groups(DirectRegressor(n_basis_functions=80), place[known], value[known], tile[known])
mean, std = tiles.predict(place, tile, return_std=True)
error = np.abs(mean - value)[~known]
inside = np.mean(error < 1.645 * std[~known])
print(f"hidden pixels: root mean squared error {np.sqrt(np.mean(error**2)):.1f}, {inside:.0%} within 90 % intervals")

# %%
# Below on the left is what the models are unsure of: sky and water are smooth and certain, leaves and carvings are not,
# and edges least of all. Tiles do not know their neighbours, hence the seams. On the right, each dot is a tile: the
# models know well how wrong they are, but for the smoothest tiles, which they trust too little.

squared = np.bincount(tile[~known], error**2) / np.bincount(tile[~known])
expected = np.sqrt(np.bincount(tile[~known], std[~known] ** 2) / np.bincount(tile[~known]))
figure, axes = plt.subplots(2, 2, figsize=(10, 8), layout="constrained")
axes[0, 0].imshow(
    np.where(known, value, np.nan).reshape(grey.shape), cmap="gray", vmin=0, vmax=255, interpolation="none"
)
axes[0, 0].set_title("what the models were given")
axes[0, 1].imshow(mean.reshape(grey.shape), cmap="gray", vmin=0, vmax=255)
axes[0, 1].set_title("mean of 500 models")
shade = axes[1, 0].imshow(std.reshape(grey.shape), cmap="viridis")
axes[1, 0].set_title("standard deviation")
figure.colorbar(shade, ax=axes[1, 0], shrink=0.7)
for axis in axes.flat[:3]:
    axis.axis("off")
axes[1, 1].loglog(expected, np.sqrt(squared), ".", color="C0", alpha=0.5)
axes[1, 1].plot([1, 100], [1, 100], color="black", lw=0.8, ls="--")
axes[1, 1].set(xlabel="standard deviation expected in the tile", ylabel="root mean squared error in the tile")
plt.show()
