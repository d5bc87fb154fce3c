"""Influence of rows and columns: differences from brute force, and seconds beside it.

    python bench/scripts/influence.py [rows | groups | columns ...]

`rows`: exact leave-one-out effects on mean and deviation beside refits of the weights without each row, everything else
held. `groups`: the same of groups of rows. `columns`: Shapley values of one row beside sums over all coalitions, with
the package `shap` if it is installed. Differences are the largest: of rows in standard deviations of the targets, of
columns as shares of all contributions. Seconds are of the processor; refits are timed on three rows and scaled up. All
on one thread. Without names, all tables.
"""

from __future__ import annotations

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"

import argparse  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable, Iterator  # noqa: E402
from importlib.util import find_spec  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
from sklearn.datasets import load_diabetes  # noqa: E402

from pydirect import DirectRegressor, Fourier  # noqa: E402
from pydirect.explain import RowInfluence, shapley  # noqa: E402
from pydirect.explain.shapley import shares_by_enumeration, shares_by_permutations  # noqa: E402

OPTIONS: dict[str, Any] = {"noise": "constant", "local": False, "target_transform": None, "random_state": 0}


def problems() -> Iterator[tuple[str, np.ndarray, np.ndarray, dict[str, Any]]]:
    """Yield name, rows, targets and parameters of the model."""
    x, y = load_diabetes(return_X_y=True, scaled=False)
    for features in ("linear", "polynomial", "fourier", "nystroem"):
        yield f"diabetes, {features}", x, y, {"features": features, "n_basis_functions": 200}
    rng = np.random.default_rng(0)
    x = rng.standard_normal((20_000, 8))
    y = np.sin(2 * x[:, 0]) * x[:, 1] + np.abs(x[:, 2]) + 0.2 * rng.standard_normal(len(x))
    for features in ("fourier", "nystroem"):
        yield f"simulated, {features}", x, y, {"features": features, "n_basis_functions": 1000}


def seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.process_time()
    result = call()
    return time.process_time() - begin, result


class Refits:
    """Moments of y at some rows by weights that are solved for again, everything else held."""

    def __init__(self, model: Any, x: np.ndarray, y: np.ndarray, at: np.ndarray) -> None:
        latent = model.model_.latent
        self.phi, self.model = latent.phi(model.columns_.encode(x))[1], model
        self.y = (y - model.y_mean_[0]) / model.y_scale_[0]
        inputs, self.at = latent.phi(model.columns_.encode(at))
        beyond = latent.beyond(inputs, self.at)
        self.rest = model.posteriors_[0].noise.variance + (0.0 if beyond is None else beyond[:, 0])

    def without(self, rows: Any) -> tuple[np.ndarray, np.ndarray]:
        tau, prior = self.model.posteriors_[0].noise.precision, self.model.prior_scale_[0] ** 2
        phi, y = np.delete(self.phi, rows, axis=0), np.delete(self.y, rows)
        precision = tau * phi.T @ phi + np.eye(phi.shape[1]) / prior
        solved = np.linalg.solve(precision, np.c_[tau * phi.T @ y, self.at.T])
        variance = np.einsum("ij,ji->i", self.at, solved[:, 1:]) + self.rest
        return self.at @ solved[:, 0], np.sqrt(variance)


def report(name: str, spent: float, by_refits: float, differences: list[float]) -> None:
    mean, std = differences
    print(f"{name:<32}{spent:>10.3f} s{by_refits:>12.1f} s{mean:>12.1e}{std:>12.1e}")


def rows_or_groups(groups: bool) -> None:
    print(f"{'':<32}{'exact':>12}{'by refits':>14}{'mean':>12}{'deviation':>12}")
    for name, x, y, parameters in problems():
        model = DirectRegressor(**OPTIONS, **parameters).fit(x, y)
        at, rng = x[:5] + 0.1, np.random.default_rng(1)
        sizes = (1,) if not groups else (10, len(x) // 4)
        for size in sizes:
            tried = [rng.choice(len(x), size, replace=False) for _ in range(3)]
            spent, influence = seconds(lambda model=model, x=x, y=y: RowInfluence(model, x, y))
            more, effects = seconds(
                lambda influence=influence, at=at, tried=tried: (
                    [influence.leave_out(rows, at) for rows in tried] if groups else influence.leave_one_out(at)
                )
            )
            refits = Refits(model, x, y, at)
            whole = refits.without([])
            by_refits, others = seconds(lambda refits=refits, tried=tried: [refits.without(rows) for rows in tried])
            found = effects if groups else [type(effects)(effects.mean[:, r[0]], effects.std[:, r[0]]) for r in tried]
            differences = [
                max(
                    np.abs(getattr(effect, part) / model.y_scale_[0] - (whole[k] - other[k])).max()
                    for effect, other in zip(found, others, strict=True)
                )
                for k, part in enumerate(("mean", "std"))
            ]
            label = f"{name}, {size} rows" if groups else name
            report(label, spent + more, by_refits / 3 * (3 if groups else len(x)), differences)


def columns() -> None:
    """Compare closed forms and random orders of a row with sums over all coalitions of ten columns."""
    titles = ("all coalitions", "closed form", "difference", "random orders", "error")
    print(f"{'':<12}{'of':>10}{'background':>12}" + "".join(f"{title:>16}" for title in titles))
    x, y = load_diabetes(return_X_y=True, scaled=False)
    players = np.arange(x.shape[1])
    for features in ("linear", "polynomial", "fourier", "nystroem"):
        model = DirectRegressor(features, n_basis_functions=200, **OPTIONS).fit(x, y)
        for of, n_background in (("mean", 20), ("variance", 1)):
            background, row = x[50 : 50 + n_background], x[0]
            game = shapley._Game(model.model_, of, background, players, len(players))
            played: Any = (game.predicted, row, background, players, len(players))
            by_force, exact = seconds(lambda played=played: shares_by_enumeration(*played))
            unit = np.abs(exact).sum()
            cells = [f"{by_force:>14.3f} s", f"{'':>16}", f"{'':>16}"]
            if game.products is not None:
                spent, found = seconds(lambda game=game, row=row: game._by_products(row, players, len(players)))
                cells[1:] = [f"{spent:>14.3f} s", f"{np.abs(found[0] - exact).max() / unit:>16.1e}"]
            n_pairs, rng = max(2, 32 // n_background), np.random.default_rng(0)
            spent, (found, _) = seconds(
                lambda played=played, n=n_pairs, rng=rng: shares_by_permutations(*played, n, rng)
            )
            cells += [f"{spent:>14.3f} s", f"{np.abs(found - exact).max() / unit:>16.1%}"]
            print(f"{features:<12}{of:>10}{n_background:>12}" + "".join(cells))
            if find_spec("shap") is not None and of == "mean":
                beside_shap(model, row, background, exact[:, 0])
    wide()


def wide() -> None:
    """Compare closed forms for 30 columns, of which there are too many coalitions, with very many random orders."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2000, 30))
    y = np.sin(x[:, 0] + x[:, 1]) + x[:, 2] * x[:, 3] + 0.1 * rng.standard_normal(len(x))
    model = DirectRegressor(Fourier(rank_inputs=False), n_basis_functions=300, **OPTIONS).fit(x, y)
    players = np.arange(30)
    for of in ("mean", "variance"):
        game = shapley._Game(model.model_, of, x[50:51], players, len(players))
        spent, found = seconds(lambda game=game: game._by_products(x[0], players, 30))
        played: Any = (game.predicted, x[0], game.background, players, 30)
        shares, errors = shares_by_permutations(*played, 1000, np.random.default_rng(1))
        score = (found[0] - shares) / errors
        print(
            f"30 columns, Fourier, {of}: closed form in {spent:.3f} s; from 1000 pairs of random orders it is "
            f"{np.sqrt(np.mean(score**2)):.2f} standard errors (root mean square)"
        )


def beside_shap(model: Any, row: np.ndarray, background: np.ndarray, exact: np.ndarray) -> None:
    """Print the same by the permutation explainer of the package shap."""
    import shap

    explainer = shap.PermutationExplainer(model.predict, background, seed=0)
    explainer(row[None], silent=True)  # compiles
    spent, found = seconds(lambda: explainer(row[None], silent=True))
    difference = np.abs(found.values[0] - exact).max() / np.abs(exact).sum()
    print(f"{'  by shap':<12}{'mean':>10}{len(background):>12}{'':>48}{spent:>14.3f} s{difference:>16.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", metavar="table", help="rows, groups or columns; all by default")
    tables = {"rows": lambda: rows_or_groups(False), "groups": lambda: rows_or_groups(True), "columns": columns}
    chosen = parser.parse_args().tables or list(tables)
    for name in chosen:
        if name not in tables:
            parser.error(f"tables are {', '.join(tables)}, got {name}")
        print(f"\n{name}")
        tables[name]()


if __name__ == "__main__":
    main()
