"""Gaps in training rows: what is missing of a row widens its own interval, and not those of complete rows."""

import numpy as np
import pytest

from pydirect import Columns, DirectRegressor, PooledRegressor, fit_many, load
from pydirect.estimators.choices import regression_plan
from pydirect.estimators.regression import GivenRows, fit_units, weigh_gaps
from pydirect.explain import LeftOutRows, RowInfluence

NOISE = 0.3


def table(n, seed=0, share=0.25, spread=lambda x: NOISE):
    """Rows, with gaps in the first two of four columns, of which these explain most; targets; and complete rows."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 4))
    x[:, 1] = 0.6 * x[:, 0] + 0.8 * x[:, 1]
    y = 2 * x[:, 0] + x[:, 1] + spread(x) * rng.standard_normal(n)
    gaps = (rng.random((n, 4)) < share) & [True, True, False, False]
    return np.where(gaps, np.nan, x), y, x


def variances(x):
    """Variances of 2a + b over what is missing, exactly: given nothing, a, and b."""
    a, b = np.isnan(x[:, :2]).T
    return np.select([a & b, a, b], [4 + 1 + 4 * 0.6, 4 * (1 - 0.6**2), 1 - 0.6**2], 0.0)


def weighed(x, y, missing="auto", **options):
    """Precisions of the rows of a fit."""
    plan, columns = regression_plan(DirectRegressor(**options)), Columns(missing=missing).encoding(x)
    encoded, absent = columns.encode_and_mark(x)
    given = GivenRows(encoded, y.reshape(len(x), -1), None, y.ndim == 1, columns, absent)
    return weigh_gaps(plan, given, [fit_units(plan, given)[1]])[0].precision


def covered(model, x, y, level=0.9):
    lower, upper = model.predict_interval(x, level)
    return np.mean((lower <= y) & (y <= upper))


def test_precisions_are_those_of_noise_and_what_is_missing():
    x, y, _ = table(1500)
    precision, expected = weighed(x, y, features="linear"), NOISE**2 / (NOISE**2 + variances(x))
    np.testing.assert_allclose(precision, expected, rtol=0.2)
    assert (precision[~np.isnan(x).any(axis=1)] == 1.0).all()


@pytest.mark.parametrize("options", [{}, {"features": "linear"}, {"posterior": "sequential", "features": "linear"}])
@pytest.mark.filterwarnings("ignore::pydirect.direct.sequential.CoarseLevelsWarning")
def test_the_noise_is_that_of_complete_rows_and_intervals_hold_for_all(options):
    x, y, _ = table(800)
    model, (new, y_new, complete) = DirectRegressor(**options).fit(x, y), table(3000, 1)
    gap = np.isnan(new).any(axis=1)
    assert np.sqrt(model.noise_variance_) == pytest.approx(NOISE, rel=0.12)
    assert covered(model, complete, y_new) == pytest.approx(0.9, abs=0.04)
    assert covered(model, new[gap], y_new[gap]) == pytest.approx(0.9, abs=0.03)


@pytest.mark.parametrize("noise", [0.1, 0.01])
def test_noise_far_below_what_gaps_add_is_found(noise):
    x, y, _ = table(800, spread=lambda x: noise)
    model, (_, y_new, complete) = DirectRegressor("linear").fit(x, y), table(2000, 1, spread=lambda x: noise)
    assert np.sqrt(model.noise_variance_) == pytest.approx(noise, rel=0.1)
    assert covered(model, complete, y_new) == pytest.approx(0.9, abs=0.03)


def test_rows_are_no_wider_where_an_indicator_tells_all_that_is_missing(tmp_path):
    rng = np.random.default_rng(0)
    x, gap = rng.standard_normal((2600, 2)), rng.random(2600) < 0.3
    y = np.where(gap, 1.5, 2 * x[:, 0]) + NOISE * rng.standard_normal(len(x))
    x[gap, 0] = np.nan
    model = DirectRegressor("linear").fit(x[:600], y[:600])
    model.save(tmp_path / "model")
    new, told = x[600:][gap[600:]], load(tmp_path / "model")
    assert model.model_.untold == pytest.approx([0.0], abs=0.01)
    assert covered(model, new, y[600:][gap[600:]]) == pytest.approx(0.9, abs=0.03)
    for each in (model, told):
        np.testing.assert_allclose(each.predict(new, return_std=True)[1], NOISE, rtol=0.1)
    np.testing.assert_array_equal(model.predict_interval(new), told.predict_interval(new))


@pytest.mark.parametrize("seed", range(3))
def test_an_indicator_narrows_only_rows_that_lack_nothing_else(tmp_path, seed):
    rng = np.random.default_rng(seed)
    x, gap = rng.standard_normal((2600, 2)), rng.random(2600) < 0.3
    y = np.where(gap, 3.0, x[:, 0]) + 2 * x[:, 1] + NOISE * rng.standard_normal(len(x))
    x[gap, 0] = np.nan
    x[rng.random(2600) < 0.1, 1] = np.nan
    model = DirectRegressor("linear").fit(x[:600], y[:600])
    new, y_new = x[600:], y[600:]
    both, alone = np.isnan(new).all(axis=1), gap[600:] & ~np.isnan(new[:, 1])
    assert model.columns_.indicators == (0,) and both.sum() > 30
    assert covered(model, new[both], y_new[both]) > 0.8
    assert covered(model, new[alone], y_new[alone]) == pytest.approx(0.9, abs=0.05)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(model.predict_interval(new), load(tmp_path / "model").predict_interval(new))


def test_complete_rows_tell_what_varying_noise_is():
    def spread(x):
        return NOISE * np.exp(x[:, 3])

    x, y, _ = table(1200, spread=spread)
    model, (new, y_new, complete) = DirectRegressor(n_basis_functions=100).fit(x, y), table(4000, 1, spread=spread)
    assert model.model_.noise.choices == ("varying",)
    gap = np.isnan(new).any(axis=1)
    assert covered(model, complete, y_new) == pytest.approx(0.9, abs=0.03)
    assert covered(model, new[gap], y_new[gap]) == pytest.approx(0.9, abs=0.03)
    ratio = model.predict_parts(complete)[2] / spread(complete)
    assert np.abs(np.log(ratio)).mean() < 0.3


def test_rows_are_not_known_better_where_their_indicators_are_all_that_they_tell():
    """Of rows with an indicator no fit has seen other numbers than those expected."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2500, 3))
    y = 2 * x[:, 0] + np.sin(2 * x[:, 1]) + NOISE * rng.standard_normal(2500)
    x[rng.random(2500) < 0.4 / (1 + np.exp(-2 * x[:, 0])), 1] = np.nan
    model = DirectRegressor().fit(x[:500], y[:500])
    assert model.columns_.indicators == (1,)
    gap = np.isnan(x[500:]).any(axis=1)
    assert covered(model, x[500:][gap], y[500:][gap]) > 0.86


def test_rows_whose_indicators_tell_what_is_missing_count_nearly_in_full():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1500, 3))
    x[:, 0] = x[:, 0] > 0
    y = 2 * x[:, 0] + x[:, 1] + NOISE * rng.standard_normal(1500)
    gaps = x.copy()
    gaps[(x[:, 0] > 0) & (rng.random(1500) < 0.7), 0] = np.nan  # only ones are missing
    gap = np.isnan(gaps[:500, 0])
    assert weighed(gaps[:500], y[:500], "indicator", features="linear")[gap].min() > 0.8
    model = DirectRegressor(n_basis_functions=100).fit(gaps[:500], y[:500])
    assert model.columns_.indicators == (0,)
    assert np.sqrt(model.noise_variance_) == pytest.approx(NOISE, rel=0.1)
    assert covered(model, x[500:], y[500:]) == pytest.approx(0.9, abs=0.03)


def test_rows_count_as_much_as_for_the_output_of_which_they_tell_most():
    x, y, complete = table(800)
    other = complete[:, 2] + NOISE * np.random.default_rng(3).standard_normal(800)
    assert weighed(x, np.stack([y, other], axis=1), features="linear").min() > 0.9
    models = fit_many([DirectRegressor("linear"), DirectRegressor("linear")], x, [other, other])
    assert models[0].noise_variance_ == pytest.approx(NOISE**2, rel=0.15)


def test_pools_take_what_was_filled_in_as_known():
    x, y, _ = table(200)
    model = PooledRegressor().fit(x, y)
    assert np.sqrt(model.noise_variance_) > 2 * NOISE


def test_complete_rows_have_no_precisions():
    _, y, x = table(100)
    assert weighed(x, y) is None


@pytest.mark.parametrize("weighted", [False, True])
def test_left_out_rows_and_influence_know_what_is_missing(weighted):
    x, y, _ = table(120)
    weight = np.random.default_rng(4).uniform(0.5, 2.0, 120) if weighted else None
    model = DirectRegressor("linear", noise="constant").fit(x, y, weight)
    z, absent = model.columns_.encode_and_mark(x)
    precision = model.model_.precisions(z, model.columns_.draws_of_missing(z, absent))
    phi, scale = model.features_.transform(z), model.y_scale_
    row_precision = precision * model.posterior_.noise.precision / model.model_.repetitions
    row_precision = row_precision if weight is None else weight * row_precision
    prior = np.eye(phi.shape[1]) / model.model_.latent.prior_scale[0] ** 2
    found, expected, standard = LeftOutRows(model, x, y, weight), [], (y - model.y_mean_) / scale
    for i in range(6):
        rest = np.arange(120) != i
        weighed_phi = phi[rest] * row_precision[rest, None]
        mean = np.linalg.solve(weighed_phi.T @ phi[rest] + prior, weighed_phi.T @ standard[rest])
        expected.append(scale * (standard[i] - phi[i] @ mean))
    np.testing.assert_allclose(found.residuals[:6], np.ravel(expected), rtol=1e-6)
    effects = RowInfluence(model, x, y, weight)
    covariance = np.linalg.inv((phi * row_precision[:, None]).T @ phi + prior)
    np.testing.assert_allclose(
        effects.leverage_, row_precision * np.einsum("ij,jk,ik->i", phi, covariance, phi), rtol=1e-6
    )
