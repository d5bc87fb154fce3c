"""What rows did to predictions is what refits without them say; other rows and other models are refused."""

import numpy as np
import pytest

from pydirect import DirectRegressor, Fourier, Nystroem, Polynomial, Sequential, load
from pydirect.explain import LeftOutRows, RowInfluence
from pydirect.statistics import PrivacyBudget

RNG = np.random.default_rng(0)
X, NEW = RNG.standard_normal((60, 3)), 1.5 * RNG.standard_normal((8, 3))
Y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.2 * RNG.standard_normal(60)
TWO = np.c_[Y, 50 - 10 * X[:, 2] + RNG.standard_normal(60)]
COUNTS = RNG.integers(0, 4, 60).astype(float)
OPTIONS = {"features": Nystroem(max_search_rows=60), "n_basis_functions": 24}


def refit(model, rows, weight, targets, k):
    """Mean and deviation of y at NEW by a refit to some rows, all else held, one output."""
    phi = model.features_.transform(X[rows])
    weight = weight[rows] / model.repetitions_
    tau, t = model.posteriors_[k].noise.precision, model.prior_scale_[k] ** 2
    covariance = np.linalg.inv(tau * (phi.T * weight) @ phi + np.eye(phi.shape[1]) / t)
    standardised = (targets[rows, k] - model.y_mean_[k]) / model.y_scale_[k]
    inputs, at = model.model_.latent.phi(NEW)
    mean = at @ covariance @ (tau * phi.T @ (weight * standardised))
    variance = np.einsum("ij,jk,ik->i", at, covariance, at) + model.posteriors_[k].noise.variance
    missing = model.model_.latent.beyond(inputs, at)
    variance += 0.0 if missing is None else missing[:, k]
    return model.y_mean_[k] + model.y_scale_[k] * mean, model.calibration_scale_ * model.y_scale_[k] * np.sqrt(variance)


CASES = {
    "landmarks": ({}, Y, None),
    "counts": ({"features": Fourier(max_search_rows=60)}, Y, COUNTS),
    "two outputs": ({}, TWO, COUNTS),
    "linear": ({"features": "linear", "noise": 0.1}, Y, None),
    "more functions than rows": ({"features": Polynomial(6)}, Y, None),
}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_effects_are_those_of_refits_without_the_rows(case):
    parameters, targets, counts = CASES[case]
    model = DirectRegressor(**{**OPTIONS, **parameters}).fit(X, targets, counts)
    model.calibrate(X, targets)
    weight, columns = np.ones(60) if counts is None else counts, targets.reshape(60, -1)
    influence = RowInfluence(model, X, targets, counts)
    each, everything = influence.leave_one_out(NEW), np.arange(60)
    groups = {"few": [2, 5, 7], "most": np.arange(50), "mask": everything < 30}
    together = {name: influence.leave_out(rows, NEW) for name, rows in groups.items()}
    assert each.mean.shape == each.std.shape == (8, 60, *targets.shape[1:])
    assert influence.leverage_.shape == influence.residual_.shape == influence.cooks_distance_.shape == targets.shape
    for k in range(columns.shape[1]):
        unit = 1e-8 * model.y_scale_[k]
        whole = refit(model, everything, weight, columns, k)
        for i in range(0, 60, 6):
            rest = refit(model, everything != i, weight, columns, k)
            for effect, before, after in zip((each.mean, each.std), whole, rest, strict=True):
                np.testing.assert_allclose(effect.reshape(8, 60, -1)[:, i, k], before - after, rtol=0, atol=unit)
        for name, rows in groups.items():
            rest = refit(model, np.delete(everything, rows), weight, columns, k)
            found = together[name].mean, together[name].std
            for effect, before, after in zip(found, whole, rest, strict=True):
                np.testing.assert_allclose(effect.reshape(8, -1)[:, k], before - after, rtol=0, atol=unit)


def test_rows_predict_themselves_as_leave_one_out_residuals_say():
    model = DirectRegressor(**OPTIONS).fit(X, TWO)
    influence = RowInfluence(model, X, TWO)
    own = np.diagonal(influence.leave_one_out(X).mean).T
    np.testing.assert_allclose(influence.residual_ + own, LeftOutRows(model, X, TWO).residuals, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(influence.leverage_ * (influence.residual_ + own), own, rtol=1e-7, atol=1e-9)


def test_an_outlier_has_the_largest_distance_and_a_row_of_weight_zero_none():
    y, weight = X @ [1.0, 2.0, 0.0] + 0.1 * RNG.standard_normal(60), np.ones(60)
    y[17] += 5.0
    weight[3] = 0.0
    influence = RowInfluence(DirectRegressor("linear").fit(X, y, weight), X, y, weight)
    assert influence.cooks_distance_.argmax() == 17
    assert influence.cooks_distance_[3] == 0.0 and not influence.leave_one_out(NEW).mean[:, 3].any()


def test_a_loaded_model_has_the_same_rows(tmp_path):
    model = DirectRegressor(**OPTIONS).fit(X, Y, COUNTS)
    model.save(tmp_path / "model.pydirect")
    loaded = load(tmp_path / "model.pydirect")
    ways = (RowInfluence(each, X, Y, COUNTS).leave_one_out(NEW) for each in (model, loaded))
    np.testing.assert_allclose(*(found.mean for found in ways), rtol=1e-9, atol=1e-12)


def test_of_a_stream_some_rows_are_enough():
    model = DirectRegressor(Fourier(max_search_rows=60), n_basis_functions=24, noise="constant")
    model.fit_stream([(X[:40], Y[:40]), (X[40:], Y[40:])])
    whole, few = RowInfluence(model, X, Y), RowInfluence(model, X[5:9], Y[5:9])
    np.testing.assert_allclose(few.leave_one_out(NEW).mean, whole.leave_one_out(NEW).mean[:, 5:9], rtol=0, atol=1e-9)
    np.testing.assert_allclose(
        few.leave_out([0, 1, 2, 3], NEW).std, whole.leave_out([5, 6, 7, 8], NEW).std, rtol=0, atol=1e-9
    )
    np.testing.assert_allclose(few.leverage_, whole.leverage_[5:9], rtol=1e-9)


def test_of_rows_that_were_added_in_blocks_some_are_enough():
    weight = COUNTS + 1
    model = DirectRegressor(**OPTIONS)
    for block in (slice(0, 40), slice(40, 60)):
        model.partial_fit(X[block], Y[block], sample_weight=weight[block])
    effects = RowInfluence(model, X[:4], Y[:4], weight[:4]).leave_one_out(NEW)
    whole, rest = (refit(model, rows, weight, Y[:, None], 0) for rows in (np.arange(60), np.arange(1, 60)))
    for effect, before, after in zip((effects.mean, effects.std), whole, rest, strict=True):
        np.testing.assert_allclose(effect[:, 0], before - after, rtol=0, atol=1e-8)
    with pytest.raises(ValueError, match=r"X must be rows that the model was fitted to, .*: row 1 is none of them"):
        RowInfluence(model, X[:4], Y[:4], [1.0, 1e6, 1.0, 1.0])


REFUSED = {
    "posterior='gaussian'": {"posterior": Sequential(n_levels=15)},
    "target_transform=None": {"target_transform": "log"},
    "local=False": {"local": 5},
    "noise='constant'": {"noise": "varying"},
}


@pytest.mark.parametrize("remedy", REFUSED)
def test_models_without_an_exact_form_are_refused(remedy):
    y = np.exp(Y)
    model = DirectRegressor(**OPTIONS, **REFUSED[remedy]).fit(X, y)
    with pytest.raises(ValueError, match=f"^effects of rows have no exact form .*{remedy}"):
        RowInfluence(model, X, y)


def test_sums_with_noise_tell_nothing_of_rows():
    model = DirectRegressor("linear").fit_features(np.array([[-3.0] * 3, [3.0] * 3]), np.array([-4.0, 4.0]))
    release = model.private_statistics(X, Y, y_bounds=(-4.0, 4.0), budget=PrivacyBudget(10.0, 1e-5), random_state=0)
    with pytest.raises(ValueError, match="where only sums with noise are known: fit to the rows"):
        RowInfluence(model.fit_statistics(release), X, Y)


def test_other_rows_are_refused():
    model = DirectRegressor(**OPTIONS).fit(X, Y)
    with pytest.raises(ValueError, match="X must be the rows of the fit, 60 by their weights, got 59"):
        RowInfluence(model, X[1:], Y[1:])
    with pytest.raises(ValueError, match="X, y and sample_weight must be those of the fit, got others"):
        RowInfluence(model, X, Y[::-1])
    with pytest.raises(TypeError, match="model must be a DirectRegressor, got list"):
        RowInfluence([], X, Y)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.arange(0), "rows must be one or more, all different"),
        ([0.5], r"rows must be indices below 60 or a mask of all rows, got \[0.5\]"),
        ([60], r"rows must be indices below 60 or a mask of all rows, got \[60\]"),
        ([3, 3], r"rows must be one or more, all different, got \[3, 3\]"),
        (np.ones(5, dtype=bool), "rows must be indices below 60 or a mask of all rows"),
    ],
)
def test_groups_that_are_none_are_refused(rows, message):
    influence = RowInfluence(DirectRegressor("linear").fit(X, Y), X, Y)
    with pytest.raises(ValueError, match=message):
        influence.leave_out(rows, NEW)
