"""Data at the edges of what is allowed, and beyond: usable predictions or a refusal that says why."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler

from pydirect import (
    Columns,
    DirectClassifier,
    DirectCountRegressor,
    DirectRegressor,
    DirectStreamRegressor,
    Fourier,
    Nystroem,
    Polynomial,
    PooledRegressor,
    Sequential,
    SpikeAndSlabPrior,
    load,
)
from pydirect.estimators import TargetWarning
from pydirect.tables import TableWarning

KINDS = {
    "nystroem": DirectRegressor(n_basis_functions=30),
    "given length-scale": DirectRegressor(features=Nystroem(length_scale=1.0), n_basis_functions=30),
    "fourier": DirectRegressor("fourier", n_basis_functions=30),
    "varying": DirectRegressor(n_basis_functions=20, noise="varying"),
    "student_t": DirectRegressor(n_basis_functions=20, noise="student_t"),
    "linear": DirectRegressor("linear"),
    "polynomial": DirectRegressor("polynomial"),
    "cubic": DirectRegressor(Polynomial(degree=3)),
    "raw": DirectRegressor(posterior="sequential", n_basis_functions=30),
    "raw linear, inferred noise": DirectRegressor("linear", posterior="mean_field", noise="grid"),
}
rng = np.random.default_rng(0)
X0 = rng.standard_normal((40, 3))
Y0 = X0[:, 0] + 0.1 * rng.standard_normal(40)
DATA = {
    "constant column": (np.c_[X0, np.full(40, 7.0)], Y0),
    "all columns constant": (np.full((40, 3), 2.0), Y0),
    "constant targets": (X0, np.full(40, 5.0)),
    "large constant targets": (X0, np.full(40, 1e12)),
    "zero targets": (X0, np.zeros(40)),
    "one row": (X0[:1], Y0[:1]),
    "two rows": (X0[:2], Y0[:2]),
    "three rows": (X0[:3], Y0[:3]),
    "one column": (X0[:, :1], Y0),
    "more columns than rows": (rng.standard_normal((12, 15)), Y0[:12]),
    "repeated rows": (np.repeat(X0[:4], 10, axis=0), np.repeat(Y0[:4], 10)),
    "repeated rows, other targets": (np.repeat(X0[:4], 10, axis=0), Y0),
    "huge columns": (X0 * 1e200, Y0),
    "tiny columns": (X0 * 1e-200, Y0),
    "large targets": (X0, Y0 * 1e80),
    "tiny targets": (X0, Y0 * 1e-100),
    "an outlier": (np.r_[X0, [[1e300, 0, 0]]], np.r_[Y0, 0]),
    "no noise": (X0, X0[:, 0]),
    "integers": ((X0 * 3).astype(int), (Y0 * 3).astype(int)),
    "booleans": (X0 > 0, Y0 > 0),
    "single precision": (X0.astype(np.float32), Y0.astype(np.float32)),
    "not contiguous": (np.asfortranarray(X0)[::2, ::-1], Y0[::2]),
    "lists": (X0.tolist(), Y0.tolist()),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::pydirect.direct.CoarseLevelsWarning", "ignore:calibrate should")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", DATA)
def test_everything_stays_finite_and_in_files(case, kind, tmp_path):
    X, y = DATA[case]
    model = clone(KINDS[kind]).fit(X, y)
    far = np.array(X, dtype=float)
    far[0] = 1e300 * np.where(np.arange(far.shape[1]) % 2, 1, -1)
    far[-1] = -1e-300
    for rows in (X, far):
        mean, std = model.predict(rows, return_std=True)
        assert np.isfinite(mean).all() and np.isfinite(std).all() and (std > 0).all()
        assert np.isfinite(model.sample_y(rows, 2)).all()
        assert all(np.isfinite(part).all() for part in (*model.predict_interval(rows), *model.predict_parts(rows)))
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(load(tmp_path / "m").predict(X, return_std=True), model.predict(X, return_std=True))
    assert np.isfinite(model.log_predictive_density(X, y)).all()
    assert np.isfinite(model.elbo_) and np.isfinite(model.noise_variance_) and 0 <= model.sparsity_ <= 1
    model.calibrate(X, y)
    assert (model.predict(X, return_std=True)[1] > 0).all()
    error, size = np.abs(model.predict(X) - np.mean(y)).max(), np.ptp(np.asarray(y, dtype=float))
    assert error <= 3 * size + 1e-6 * abs(np.mean(y)) + 1e-15


KERNELS = {"fourier": Fourier, "nystroem": Nystroem}
DEGENERATE = {
    "constant targets": (X0[:12], np.full(12, 3.0)),
    "zero targets": (X0[:12], np.zeros(12)),
    "one row": (X0[:1], Y0[:1]),
    "two rows": (X0[:2], Y0[:2]),
    "repeated columns": (np.c_[X0, X0][:12], X0[:12, 0]),
    "zero columns": (np.zeros((12, 2)), Y0[:12]),
    "targets of 1e-300": (X0[:12], Y0[:12] * 1e-300),
    "targets of 1e150": (X0[:12], Y0[:12] * 1e150),
    "inputs of 1e19": (X0[:12] * 1e19, Y0[:12]),
    "inputs of 1e-22": (X0[:12] * 1e-22, Y0[:12]),
    "a far row": (np.r_[X0[:12], [[1e12, 0, 0]]], np.r_[Y0[:12], 1e12]),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::pydirect.direct.CoarseLevelsWarning")
@pytest.mark.parametrize("case", DEGENERATE)
def test_degenerate_data_give_a_finite_model_or_say_why_not(case):
    X, y = DEGENERATE[case]
    raw_priors = ("gaussian", "spike_and_slab", SpikeAndSlabPrior(0.999))
    posteriors = ["gaussian", *(Sequential(prior=prior) for prior in raw_priors)]
    for features in ("linear", "precomputed", "fourier", "nystroem"):
        for posterior in posteriors:
            # Noise of 1e-25 leaves nothing of the ridge, and A has as many directions as rows or distinct columns.
            for noise in {"linear": ("auto", 0.5, 1e-25), "precomputed": ("auto", 1e-25)}.get(features, ("auto",)):
                chosen = KERNELS[features](length_scale=1.0) if features in KERNELS else features
                model = DirectRegressor(chosen, 40, posterior, noise)
                try:
                    model.set_params(max_iter=30).fit(X, y)
                except ValueError as error:
                    assert not isinstance(error, np.linalg.LinAlgError)
                    assert str(error).startswith(
                        ("y must be at most", "noise must be within", "X must be within", "X must be nearer")
                    )
                else:
                    assert np.isfinite(model.predict(X, return_std=True)).all() and np.isfinite(model.elbo_)


@pytest.mark.parametrize("features", ["nystroem", "linear", "fourier", "polynomial"])
def test_constant_columns_are_ignored_in_fit_and_at_prediction(features):
    model = DirectRegressor(features, n_basis_functions=40)
    plain = clone(model).fit(X0, Y0)
    padded = clone(model).fit(np.c_[np.full(40, 3.0), X0], Y0)
    np.testing.assert_allclose(padded.predict(np.c_[X0[:, 1], X0]), plain.predict(X0), rtol=1e-9)


@pytest.mark.parametrize("layout", ["memmap", "read-only", "float32", "fortran", "strided"])
def test_inputs_in_any_layout_give_the_same_and_are_left_alone(layout, tmp_path):
    X = X0.astype(np.float32).astype(float)
    expected = DirectRegressor(n_basis_functions=50).fit(X, Y0).predict(X)
    if layout == "memmap":
        X.tofile(tmp_path / "x")
        other = np.memmap(tmp_path / "x", dtype=float, mode="r", shape=X.shape)
    elif layout == "strided":
        other = np.zeros((80, 6))[::2, ::2]
        other[:] = X
    else:
        other = {"float32": X.astype(np.float32), "fortran": np.asfortranarray(X), "read-only": X.copy()}[layout]
        other.flags.writeable = layout != "read-only"
    before, y_before = other.copy(), Y0.copy()
    np.testing.assert_allclose(DirectRegressor(n_basis_functions=50).fit(other, Y0).predict(other), expected, rtol=1e-9)
    np.testing.assert_array_equal(other, before)
    np.testing.assert_array_equal(Y0, y_before)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_missing_and_infinite_values_are_refused_by_name(bad):
    X, y, weight = X0.copy(), Y0.copy(), np.ones(40)
    X[3, 1] = y[5] = weight[7] = bad
    model = DirectRegressor("linear", columns=Columns(missing="raise"))
    for arguments, name in (((X, Y0), "X"), ((X0, y), "y"), ((X0, Y0, weight), "sample_weight")):
        with pytest.raises(ValueError, match=rf"\b{name}\b"):
            model.fit(*arguments)
    model.fit(X0, Y0)
    with pytest.raises(ValueError, match=r"\bX\b"):
        model.predict(X)
    for method in (model.log_predictive_density, model.calibrate):
        with pytest.raises(ValueError, match="y must be finite"):
            method(X0, y)


def test_wrong_data_are_refused_by_name():
    model = DirectRegressor("linear").fit(X0, Y0)
    for call, message in (
        (lambda: model.fit(X0, Y0[:30]), "inconsistent numbers of samples"),
        (lambda: model.fit(X0[:, 0], Y0), "2D array"),
        (lambda: model.fit(X0, Y0, np.ones(3)), r"sample_weight must have shape \(40,\)"),
        (lambda: model.fit(X0, Y0, -np.ones(40)), "sample_weight must not be negative"),
        (lambda: model.fit(X0, 1e200 * Y0), "y must be at most 1e"),
        (lambda: DirectRegressor("precomputed").fit(1e200 * X0, Y0), "X must be at most 1e"),
        (lambda: model.predict_interval(X0, level=1.0), "level must be above 0"),
        (lambda: model.predict_interval(X0, level=90), "level must be"),
        (lambda: model.predict_quantiles(X0, [0.5, 1.5]), "p must|quantile|between 0 and 1"),
        (lambda: model.sample_y(X0, 0), "n_samples must be at least 1"),
        (lambda: model.log_predictive_density(X0, Y0[:3]), "y must have shape"),
        (lambda: model.log_predictive_density(X0, np.c_[Y0, Y0]), "y must have 1 outputs"),
        (lambda: model.calibrate(X0, Y0[:3]), "y must have shape"),
        (lambda: model.calibrate(X0, np.c_[Y0, Y0]), "y must have 1 outputs"),
    ):
        model.fit(X0, Y0)
        with pytest.raises((ValueError, TypeError), match=message):
            call()


@pytest.mark.parametrize(
    ("model", "y", "refused"),
    [
        (DirectRegressor("linear"), Y0, 1e200 * Y0),
        (DirectClassifier("linear"), Y0 > 0, np.zeros(len(Y0))),
        (DirectCountRegressor("linear"), np.arange(len(Y0)), np.full(len(Y0), -1)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_refused_refit_to_other_columns_leaves_the_model_as_it_was(model, y, refused):
    before = model.fit(X0, y).predict(X0)
    with pytest.raises(ValueError, match="y must"):
        model.fit(X0[:, :2], refused)
    np.testing.assert_array_equal(model.predict(X0), before)


def test_dates_and_masked_values_are_no_targets():
    dates = np.datetime64("2020-01-01") + np.arange(len(Y0))
    for x, y in ((X0, dates), (X0, dates - dates[0])):
        with pytest.raises(TypeError, match="got dates or times"):
            DirectRegressor("linear").fit(x, y)
    hidden = np.zeros(len(Y0), dtype=bool)
    hidden[0] = True
    for x, y in (
        (np.ma.masked_array(X0, np.tile(hidden[:, None], X0.shape[1])), Y0),
        (X0, np.ma.masked_array(Y0, hidden)),
    ):
        with pytest.raises(ValueError, match="must have no masked values"):
            DirectRegressor("linear").fit(x, y)
    unmasked = np.ma.masked_array(Y0, np.zeros(len(Y0), dtype=bool))
    expected = DirectRegressor("linear").fit(X0, Y0).predict(X0)
    np.testing.assert_array_equal(DirectRegressor("linear").fit(X0, unmasked).predict(X0), expected)


def test_transformers_are_cloned_and_give_the_features():
    scaler = StandardScaler()
    model = DirectRegressor(scaler).fit(X0, Y0)
    assert not hasattr(scaler, "mean_")
    expected = DirectRegressor("precomputed").fit(StandardScaler().fit_transform(X0), Y0)
    np.testing.assert_array_equal(model.predict(X0), expected.predict(StandardScaler().fit_transform(X0)))


@pytest.mark.parametrize("estimator", [DirectRegressor("linear"), DirectClassifier("linear")])
@pytest.mark.parametrize("kind", [list, lambda y: np.array(y, dtype=object), lambda y: np.array(y, dtype=float)])
def test_a_target_that_is_missing_is_told_with_its_row(estimator, kind):
    with pytest.raises(ValueError, match=r"y must have no missing values, got (None|nan) in row 1"):
        estimator.fit(np.arange(30.0)[:, None], kind([1.0, None, 2.0] * 10))


def test_of_several_outputs_some_may_be_missing_elsewhere():
    y = np.ones((30, 2))
    y[5, 1] = np.nan
    with pytest.raises(ValueError, match=r"got nan in row 5: leave such rows out or use CorrelatedRegressor$"):
        DirectRegressor("linear").fit(np.arange(30.0)[:, None], y)


def test_labels_are_no_targets_but_numbers_as_text_are():
    x = np.arange(30.0)[:, None]
    with pytest.raises(ValueError, match=r"y must hold numbers, but .*'a': labels are for classifiers"):
        DirectRegressor("linear").fit(x, ["a", "b", "c"] * 10)
    assert DirectRegressor("linear").fit(x, x[:, 0].astype(str)).score(x, x[:, 0]) > 0.99


# --- what is said, and in which units


def test_gross_targets_choose_student_t_noise_unless_a_scale_explains_them():
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (200, 2))
    y = np.sin(2 * x[:, 0]) + 0.1 * rng.standard_normal(200)
    plain = DirectRegressor().fit(x, y)
    y[7] += 1000.0
    with pytest.warns(TargetWarning, match="noise is taken as Student-t's"):
        robust = DirectRegressor().fit(x, y)
    assert "student_t" in robust.noise_choice_ and robust.target_transform_ is None
    assert np.abs(robust.predict(x) - plain.predict(x)).max() < 0.1
    with pytest.warns(TargetWarning, match="noise is taken"):
        assert "student_t" in PooledRegressor("linear", trees=False).fit(x, y).model_.kernel.noise.choices
    with pytest.warns(TargetWarning, match="may ruin the fit"):
        assert DirectRegressor(local=20).fit(x, y).noise_choice_ == {}
    skewed = np.exp(2.5 * (x[:, 0] + 0.5 * rng.standard_normal(200)))
    skewed[x[:, 0].argmax()] *= 20
    assert DirectRegressor("linear").fit(x, skewed).target_transform_.names == ("log",)


@pytest.mark.filterwarnings("ignore::pydirect.tables.TableWarning")
@pytest.mark.parametrize("table", [np.ones((100, 2)), np.full((100, 1), np.nan)], ids=["constant", "empty"])
def test_columns_of_no_use_leave_a_constant_model_of_skewed_targets(table):
    y = np.random.default_rng(0).exponential(size=100)
    model = DirectRegressor().fit(table, y)
    mean, std = model.predict(table[:2], return_std=True)
    assert mean[0] == mean[1] and abs(mean[0] - y.mean()) < 0.5 * y.std() and 0.5 < std[0] / y.std() < 2


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e5])
@pytest.mark.parametrize("learn", ["fit", "partial_fit"])
def test_deviations_of_a_single_training_row_have_its_unit(unit, learn):
    model = getattr(DirectRegressor("linear"), learn)([[1.0]], [-2.0 * unit])
    mean, std = model.predict([[1.0], [3.0]], return_std=True)
    expected = DirectRegressor("linear").fit([[1.0]], [-2.0]).predict([[1.0], [3.0]], return_std=True)[1]
    np.testing.assert_allclose(mean, -2.0 * unit)
    np.testing.assert_allclose(std, expected * unit)
    assert getattr(DirectRegressor(), learn)([[1.0]], [-2.0 * unit]).predict([[3.0]], return_std=True)[1] > unit


def test_intervals_are_wider_where_numbers_are_missing_only_in_predictions():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((1400, 4))
    x[:, 1] = 0.7 * (x[:, 0] + x[:, 1])
    y = np.sin(1.5 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.5 * x[:, 3] + 0.2 * rng.standard_normal(1400)
    model = DirectRegressor(n_basis_functions=200, target_transform=None).fit(x[:400], y[:400])
    rows, y = np.where(rng.random((1000, 4)) < 0.3, np.nan, x[400:]), y[400:]
    whole = ~np.isnan(rows).any(axis=1)
    with pytest.warns(TableWarning, match="intervals are wider by what f varies"):
        lower, upper = model.predict_interval(rows)
    assert 0.86 < np.mean((lower < y) & (y < upper)) < 0.94
    with pytest.warns(TableWarning):
        _, std = model.predict(rows, return_std=True)
        epistemic, aleatoric = model.predict_parts(rows)[1:]
        draws = model.sample_y(rows[:20], 4000)
        covariance = model.predict(rows[:20], return_cov=True)[1]
    np.testing.assert_allclose(np.hypot(epistemic, aleatoric), std)
    np.testing.assert_allclose(covariance.diagonal(), std[:20] ** 2)
    np.testing.assert_allclose(draws.std(axis=1), std[:20], rtol=0.1)
    np.testing.assert_allclose(model.predict(rows[whole], return_std=True)[1], std[whole])
    with pytest.warns(TableWarning):  # a row's deviation does not depend on the rows beside it
        np.testing.assert_allclose(model.predict(rows[~whole][:3], return_std=True)[1], std[~whole][:3])


@pytest.mark.parametrize(("value", "n_first_rows", "least"), [(np.nan, 64, 1), (1.0, 16, 0)])
def test_a_stream_says_once_that_a_column_is_empty_or_constant(value, n_first_rows, least):
    x = np.column_stack([np.linspace(-1, 1, 80), np.full(80, value)])
    model = DirectStreamRegressor("linear", n_first_rows=n_first_rows)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for rows in np.split(np.arange(80), 8):
            model.partial_fit(x[rows], x[rows, 0])
    assert least <= len(told) <= 1 and all(warning.filename == __file__ for warning in told)
    assert not least or "has no values" in str(told[0].message)


@pytest.mark.parametrize("rows", [{"a": 1.0}, [{"a": 1.0}, {"a": 2.0}]])
def test_rows_as_dicts_are_refused_with_the_way_out(rows):
    for model in (DirectRegressor("linear"), DirectStreamRegressor("linear")):
        with pytest.raises(TypeError, match=r"got dicts: use pandas\.DataFrame\(rows\)"):
            model.partial_fit(rows, [1.0, 2.0])


def test_the_nearest_name_is_offered():
    with pytest.raises(ValueError, match="got 'nystrom': did you mean 'nystroem'"):
        DirectRegressor("nystrom").fit([[0.0], [1.0]], [0.0, 1.0])
    with pytest.raises(ValueError, match=r"got 'Cauchy'$"):
        DirectRegressor("linear", noise="Cauchy").fit([[0.0], [1.0]], [0.0, 1.0])


@pytest.mark.parametrize("kind", [DirectRegressor, DirectClassifier])
@pytest.mark.parametrize(("weight", "message"), [(1e200, "at most 1e[+]100"), (1e-200, "a mean of at least 1e-100")])
def test_weights_whose_squares_are_no_numbers_are_refused(kind, weight, message):
    x = np.arange(20.0)[:, None]
    with pytest.raises(ValueError, match=message):
        kind().fit(x, np.arange(20) % 2, sample_weight=np.full(20, weight))
