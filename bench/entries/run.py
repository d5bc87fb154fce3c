"""Runs the entries for public benchmarks on tables that come with scikit-learn, through AutoGluon and ScoringBench.

    python bench/entries/run.py [tabarena] [scoringbench]

AutoGluon has to be installed (``pip install autogluon.tabular``): it bags, weighs and scores models as TabArena does.
ScoringBench is on no package index: without it, a stand-in of its interface checks what the entry hands over.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import types
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.model_selection import train_test_split

sys.path.insert(0, str(Path(__file__).parent))


class StandInPrediction:
    """What ScoringBench keeps of a prediction made of quantiles."""

    def __init__(self, quantiles: np.ndarray, levels: np.ndarray, mean: np.ndarray) -> None:
        self.quantiles, self.levels, self.mean = quantiles, levels, mean

    @classmethod
    def from_multi_quantile(
        cls, q: np.ndarray, alphas: np.ndarray, mean: np.ndarray, *, train_range: tuple[float, float]
    ) -> Self:
        """Check shapes, order and range as ScoringBench does."""
        assert q.shape == (len(mean), len(alphas)) and np.isfinite(q).all() and train_range[0] < train_range[1]
        assert (np.diff(q, axis=1) >= 0).all() and (np.diff(alphas) > 0).all() and 0 < alphas[0] < alphas[-1] < 1
        return cls(q, alphas, mean)


class StandInWrapper:
    """The base class of ScoringBench's wrappers."""

    def _set_train_range(self, y: Any) -> None:
        self._y_train_range = (float(np.nanmin(y)), float(np.nanmax(y)))


def use_stand_in() -> None:
    """Make the stand-in importable under ScoringBench's names."""
    name = "scoringbench"
    for part in ("univariate", "wrappers", "base"):
        sys.modules[name] = types.ModuleType(name)
        name = f"{name}.{part}"
    base: Any = types.ModuleType(name)
    base.DistributionPrediction, base.ProbabilisticWrapper = StandInPrediction, StandInWrapper
    sys.modules[name] = base


def pinball(y: np.ndarray, quantiles: np.ndarray, levels: np.ndarray) -> float:
    """Twice the mean quantile loss over levels: the CRPS, up to the spacing of the levels."""
    below = y[:, None] - quantiles
    loss = np.maximum(levels * below, (levels - 1.0) * below)
    return float(2.0 * np.trapezoid(loss, levels, axis=1).mean())


def run_scoringbench() -> None:
    """Fit the wrapper, with a gap in the targets, and compare CRPS of its quantiles with that of the distribution."""
    installed = "ScoringBench"
    if find_spec("scoringbench") is None:
        use_stand_in()
        installed = "stand-in of ScoringBench"
    from scoringbench_entry import DirectWrapper

    X, y = load_diabetes(return_X_y=True, as_frame=True)
    train, test, y_train, y_test = train_test_split(X, y.astype(float), random_state=0)
    y_train.iloc[0] = np.nan
    wrapper = DirectWrapper().fit(train, y_train)
    found = wrapper.predict_distribution(test)
    exact = float(wrapper.model.predict_distribution(test).crps(y_test.to_numpy()).mean())
    line = f"{installed}: diabetes, RMSE {np.sqrt(np.mean((found.mean - y_test) ** 2)):.1f}, CRPS {exact:.2f}"
    if isinstance(found, StandInPrediction):
        of_quantiles = pinball(y_test.to_numpy(), found.quantiles, found.levels)
        assert abs(of_quantiles / exact - 1.0) < 0.01, (of_quantiles, exact)
        line += f", of the quantiles {of_quantiles:.2f}"
    print(line)


def run_tabarena() -> None:
    """Fit the model in AutoGluon, bagged and alone, to every kind of target, beside LightGBM if that is installed."""
    from autogluon.tabular import TabularPredictor
    from tabarena_entry import DirectModel

    tables = {
        "regression": load_diabetes,
        "binary": load_breast_cancer,
        "multiclass": load_wine,
        "quantile": load_diabetes,
    }
    for problem, load in tables.items():
        frame = load(as_frame=True).frame
        train, test = train_test_split(frame, random_state=0)
        quantiles = {"quantile_levels": [0.05, 0.5, 0.95]} if problem == "quantile" else {}
        pooled = [] if problem == "quantile" else [{"pooled": True}]
        metric = {"binary": "log_loss", "multiclass": "log_loss"}.get(problem)
        with tempfile.TemporaryDirectory() as path:
            predictor = TabularPredictor(
                "target", problem_type=problem, path=path, verbosity=0, eval_metric=metric, **quantiles
            )
            predictor.fit(train, hyperparameters={DirectModel: [{}, *pooled]}, num_bag_folds=4, dynamic_stacking=False)
            board = predictor.leaderboard(test)
            assert len(board) >= 2 + len(pooled), predictor.model_failures()
            print(f"AutoGluon: {problem}")
            print(board[["model", "score_test", "score_val", "fit_time"]].to_string(index=False))


def main() -> None:
    """Run what is named, or both."""
    runs = {"tabarena": run_tabarena, "scoringbench": run_scoringbench}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("entries", nargs="*", metavar="entry", help=f"of {', '.join(runs)}; both by default")
    chosen = parser.parse_args().entries or list(runs)
    if unknown := set(chosen) - set(runs):
        parser.error(f"entries must be among {', '.join(runs)}, got {', '.join(sorted(unknown))}")
    for name in chosen:
        runs[name]()


if __name__ == "__main__":
    main()
