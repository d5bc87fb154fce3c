"""Data of the comparison: training and test rows of a fold, by name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn.datasets import load_diabetes, make_friedman1, make_friedman2, make_friedman3
from sklearn.model_selection import KFold

sys.path.append(str(Path(__file__).parents[1] / "paper"))

Rows = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # training inputs and targets, test inputs and targets

# Rows of the files, smallest first; those of the second paper are read from its folder, with its splits.
UCI = {
    "yacht": 308,
    "autompg": 392,
    "housing": 506,
    "stock": 536,
    "energy": 768,
    "concrete": 1030,
    "airfoil": 1503,
    "wine": 1599,
    "skillcraft": 3338,
    "parkinsons": 5875,
    "pol": 15000,
    "elevators": 16599,
    "protein": 45730,
}
DVI_UCI = {"kin8": 8192, "powe": 9568}
# Breiman's (1996) test problems: noise of deviation 1, and a third of the function's.
FRIEDMAN: dict[str, tuple[Callable[..., tuple[np.ndarray, np.ndarray]], float]] = {
    "friedman1": (make_friedman1, 1.0),
    "friedman2": (make_friedman2, 125.0),
    "friedman3": (make_friedman3, 0.1),
}
FRIEDMAN_ROWS, FRIEDMAN_TEST_ROWS = 500, 1000
SCIKIT_LEARN = {"diabetes": 442, **dict.fromkeys(FRIEDMAN, FRIEDMAN_ROWS)}

SIZES = dict(sorted({**UCI, **DVI_UCI, **SCIKIT_LEARN}.items(), key=lambda item: item[1]))


def rows_of(name: str, fold: int) -> Rows:
    """Return the rows of a fold; a fold of a simulated problem is a seed."""
    if name in FRIEDMAN:
        make, noise = FRIEDMAN[name]
        x, y = make(FRIEDMAN_ROWS + FRIEDMAN_TEST_ROWS, noise=noise, random_state=fold)
        return x[:FRIEDMAN_ROWS], y[:FRIEDMAN_ROWS], x[FRIEDMAN_ROWS:], y[FRIEDMAN_ROWS:]
    if name == "diabetes":
        x, y = load_diabetes(return_X_y=True)
        test = np.zeros(len(y), dtype=bool)
        test[list(KFold(10, shuffle=True, random_state=0).split(x))[fold][1]] = True
    else:
        from table1 import data_directory

        folder = "uci" if name in UCI else "dvi_uci"
        with np.load(data_directory() / folder / f"{name}.npz", allow_pickle=False) as data:
            x, y, test = data["X"], data["y"].ravel(), data["test_mask"][:, fold].astype(bool)
    return x[~test], y[~test], x[test], y[test]
