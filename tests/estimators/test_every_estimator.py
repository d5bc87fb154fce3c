"""What holds of every estimator: all predictions agree, with the same bits from files, by threads and in batches."""

import copy
import pickle

import numpy as np
import pytest
from sklearn.base import clone

import pydirect
from pydirect import (
    DirectCensoredRegressor,
    DirectClassifier,
    DirectCountRegressor,
    DirectMixedRegressor,
    DirectOrdinalClassifier,
    DirectRegressor,
    DirectStreamRegressor,
    DirectSurvivalRegressor,
    DVIClassifier,
    DVIRegressor,
    Fourier,
    MeanField,
    MonteCarloBNNClassifier,
    MonteCarloBNNRegressor,
    Nystroem,
    PooledClassifier,
    PooledRegressor,
    QuadraticBNNRegressor,
    Sequential,
    TrainingSchedule,
    fit_many,
)
from pydirect.estimators import CorrelatedRegressor, TargetWarning
from pydirect.networks import EmpiricalBayes

RNG = np.random.default_rng(0)
X, NEW = RNG.uniform(-2, 2, (120, 2)), RNG.uniform(-2, 2, (20, 2))
F = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
Y = F + 0.2 * RNG.standard_normal(120)
TWO, GROUP = np.c_[Y, 50 - Y**2], RNG.integers(0, 6, 120)
COUNTS, TIMES, PARTS = RNG.poisson(np.exp(F)), np.exp(Y), np.c_[np.where(Y > 0, Y, -np.inf), np.maximum(Y, 0)]
BINARY, CLASSES = np.where(Y > 0, "yes", "no"), np.digitize(Y, [-0.5, 0.5])
SMALL = {"features": Nystroem(max_search_rows=60), "n_basis_functions": 30}
BRIEF = TrainingSchedule(n_steps=30)
SHORT = {"hidden_layer_sizes": (5,), "schedule": BRIEF}
# Estimators, and what they are fitted to beside X.
KINDS = {
    "gaussian": (DirectRegressor(**SMALL), TWO),
    "sequential": (DirectRegressor("fourier", 30, "sequential"), Y),
    "precomputed": (DirectRegressor("precomputed", posterior=Sequential(n_levels=255, keep_factor=True)), TWO),
    "polynomial": (DirectRegressor("polynomial"), Y[:, None]),
    "varying noise": (DirectRegressor(**SMALL, noise="varying"), Y),
    "heavy tails": (DirectRegressor(**SMALL, noise="student_t"), Y),
    "local": (DirectRegressor(**SMALL, local=8), Y),
    "log": (DirectRegressor(**SMALL, target_transform="log"), np.exp(Y)),
    "sqrt": (DirectRegressor(**SMALL, target_transform="sqrt"), COUNTS),
    "mean field": (DirectRegressor("linear", posterior="mean_field"), Y),
    "stream": (DirectStreamRegressor(n_basis_functions=30), Y),
    "mixture": (DirectRegressor("linear", posterior=MeanField(n_components=2)), TWO),
    "two classes": (DirectClassifier(**SMALL), BINARY),
    "classes": (DirectClassifier(**SMALL), CLASSES),
    "sequential classes": (DirectClassifier("linear", posterior="sequential"), CLASSES),
    "classes of many rows": (DirectClassifier("fourier", 30, class_weight="balanced"), BINARY),
    "exponential bound": (DirectClassifier("polynomial", posterior="mean_field", bound="exponential"), CLASSES),
    "published bound": (DirectClassifier("linear", bound="jaakkola"), BINARY),
    "classes of mean field": (DirectClassifier("linear", posterior="mean_field"), CLASSES),
    "counts": (DirectCountRegressor(**SMALL), COUNTS),
    "counts of many rows": (DirectCountRegressor(Fourier(max_search_rows=60), 30), COUNTS),
    "censored": (DirectCensoredRegressor(**SMALL), PARTS),
    "survival": (DirectSurvivalRegressor(**SMALL, likelihood="extreme"), TIMES),
    "ordinal": (DirectOrdinalClassifier(**SMALL), CLASSES),
    "mixed": (DirectMixedRegressor(**SMALL), Y, GROUP),
    "correlated": (CorrelatedRegressor(**SMALL), TWO),
    "pooled classes": (PooledClassifier(**SMALL, trees=True), CLASSES),
    "pooled": (PooledRegressor(**SMALL, trees=True), TWO),
    "dvi": (DVIRegressor(**SHORT), TWO),
    "released code": (DVIRegressor(**SHORT, prior=EmpiricalBayes.released_code()), Y),
    "modes": (DVIRegressor(**SHORT, noise="constant", prior=0.5, inference="map"), Y),
    "dvi classes": (DVIClassifier(**SHORT), CLASSES),
    "sampled": (MonteCarloBNNRegressor(**SHORT), Y),
    "radial": (
        MonteCarloBNNRegressor((4, 3), noise="constant", posterior="radial", kl_mode="fixed", schedule=BRIEF),
        TWO,
    ),
    "laplace": (MonteCarloBNNRegressor((5,), prior=("laplace", 0.0, 1.0), kl_mode="independent", schedule=BRIEF), Y),
    "sampled classes": (MonteCarloBNNClassifier(**SHORT), BINARY),
    "quadratic": (QuadraticBNNRegressor((3, 2), max_iter=20, n_restarts=2), TWO),
}
pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning",
    "ignore::pydirect.fitted.regression.LocalProcessWarning",
    "ignore::pydirect.direct.CoarseLevelsWarning",
    "ignore:text labels",
)


@pytest.fixture(scope="module", params=KINDS)
def case(request):
    model, *targets = KINDS[request.param]
    return clone(model).set_params(n_threads=1).fit(X, *targets), targets


def predicted(model, rows=slice(None)):
    """Everything that is computed of some rows, rows last."""
    groups = ((np.arange(20) % 8)[rows],) if isinstance(model, DirectMixedRegressor) else ()
    found = [model.predict(NEW[rows], *groups)]
    for name in ("predict_log_proba", "predict_parts", "predict_latent", "predict_log_rate"):
        found += [getattr(model, name)(NEW[rows])] if hasattr(model, name) else []
    if hasattr(model, "predict_survival"):
        found.append(model.predict_survival(NEW[rows], [0.1, 1.0, 9.0]))
    if not hasattr(model, "predict_proba"):
        found.append(model.predict_interval(NEW[rows], *groups))
    arrays = [array for part in found for array in (part if isinstance(part, tuple) else (part,))]
    return [np.moveaxis(array, 0, -1) for array in arrays]


def bits(model):
    """Everything that a model predicts, as bytes."""
    drawn = [getattr(model, name)(NEW, 3) for name in ("sample_y", "sample_proba") if hasattr(model, name)]
    return [np.ascontiguousarray(part).tobytes() for part in predicted(model) + drawn]


def test_files_and_pickles_predict_the_same_bits(case, tmp_path):
    model, _ = case
    model.save(tmp_path / "m", {"note": 1})
    loaded = pydirect.load(tmp_path / "m")
    assert type(loaded) is type(model) and loaded.metadata_ == {"note": 1}
    assert bits(loaded) == bits(model) == bits(pickle.loads(pickle.dumps(model)))
    assert repr(loaded.get_params()) == repr(model.get_params()) and loaded.summary() == model.summary()
    for name in ("n_iter_", "converged_", "interrupted_", "total_weight_", "fit_seconds_", "n_features_in_"):
        assert not hasattr(model, name) or getattr(loaded, name) == getattr(model, name), name


@pytest.mark.unperturbed
def test_a_loaded_model_is_saved_with_the_same_bytes(case, tmp_path):
    case[0].save(tmp_path / "m")
    pydirect.load(tmp_path / "m").save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "m").read_bytes()


def test_a_loaded_model_is_fitted_again_to_the_same_bits_on_any_number_of_threads(case, tmp_path):
    model, targets = case
    model.save(tmp_path / "m")
    assert bits(pydirect.load(tmp_path / "m").set_params(n_threads=3).fit(X, *targets)) == bits(model)


def test_a_row_is_predicted_with_the_same_bits_in_any_batch_on_any_threads_and_instructions(case, isa_level):
    model = copy.copy(case[0])
    together = predicted(model)
    for n_threads, rows in ((1, slice(0, 1)), (1, slice(7, 8)), (3, slice(13, 20))):
        for own, all_rows in zip(predicted(model.set_params(n_threads=n_threads), rows), together, strict=True):
            np.testing.assert_array_equal(own, all_rows[..., rows])


def test_every_form_of_a_regressors_prediction_agrees(case):
    model, targets = case
    if not hasattr(model, "predict_parts"):
        pytest.skip("no regressor whose deviations have parts")
    mean, std = model.predict(NEW, return_std=True)
    again, epistemic, aleatoric = model.predict_parts(NEW)
    np.testing.assert_allclose(model.predict(NEW), mean, rtol=1e-12)
    np.testing.assert_allclose(again, mean, rtol=1e-12)
    np.testing.assert_allclose(np.hypot(epistemic, aleatoric), std, rtol=1e-9)
    found = model.predict_distribution(NEW)
    distributions = found if isinstance(found, list) else [found]
    shape = (len(NEW), len(distributions))
    np.testing.assert_allclose(np.stack([d.mean for d in distributions], 1), mean.reshape(shape), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(np.stack([d.std for d in distributions], 1), std.reshape(shape), rtol=1e-6)
    quantiles = model.predict_quantiles(NEW, [0.1, 0.3, 0.9])
    ends = np.stack(model.predict_interval(NEW, level=0.8), axis=-1)
    np.testing.assert_allclose(quantiles[..., [0, 2]], ends, rtol=1e-8, atol=1e-12)
    density = model.log_predictive_density(NEW, targets[0][:20]).reshape(shape)
    for k, d in enumerate(distributions):
        values = quantiles.reshape(*shape, 3)[:, k, 1]
        inside = values > getattr(d, "low", -np.inf)  # where less than 0.3 is below what is believed
        assert inside.any() and (d.cdf(values)[~inside] >= 0.3).all()
        np.testing.assert_allclose(d.cdf(values)[inside], 0.3, rtol=1e-8)
        np.testing.assert_allclose(d.log_density(targets[0][:20].reshape(shape)[:, k]), density[:, k], rtol=1e-10)


def test_every_form_of_a_classifiers_prediction_agrees(case):
    model, _ = case
    if not hasattr(model, "predict_proba"):
        pytest.skip("no classifier")
    p, log_p = model.predict_proba(NEW), model.predict_log_proba(NEW)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(np.log(p), log_p, rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(model.predict(NEW), model.classes_[p.argmax(axis=1)])
    kept = model.predict_or_reject(NEW, 0.8)
    np.testing.assert_array_equal(np.ma.getmaskarray(kept), p.max(axis=1) < 0.8)
    np.testing.assert_array_equal(kept.compressed(), model.predict(NEW)[p.max(axis=1) >= 0.8])
    if hasattr(model, "decision_function"):
        decision = model.decision_function(NEW)
        if decision.ndim == 1:
            np.testing.assert_allclose(decision, log_p[:, 1] - log_p[:, 0], rtol=1e-9, atol=1e-12)
        elif getattr(model, "bound", "auto") == "auto" and getattr(model, "posterior", "") != "mean_field":
            np.testing.assert_allclose(decision, log_p, rtol=1e-9, atol=1e-12)
    if hasattr(model, "sample_proba"):
        n_draws = 64 if getattr(model, "posterior", "") == "sequential" else 4000
        mean, std = model.predict_logit(NEW, return_std=True)
        np.testing.assert_array_equal(model.predict_logit(NEW), mean)
        assert mean.shape == std.shape == (20, len(model.classes_))[: 1 + (len(model.classes_) > 2)] and (std > 0).all()
        drawn = model.sample_proba(NEW, n_draws)
        np.testing.assert_allclose(drawn.sum(axis=1), 1.0, rtol=1e-12)
        error = drawn.std(axis=2, ddof=1) / np.sqrt(n_draws)
        assert (np.abs(drawn.mean(axis=2) - p) < 4.5 * error + 5e-3).all()


# Regressors of numbers as they are, and of scales.
PLAIN = ["gaussian", "precomputed", "polynomial", "varying noise", "heavy tails", "mean field", "mixture"]
SCALES = ["log", "sqrt"]


@pytest.mark.parametrize("case", [*PLAIN, *SCALES, "dvi", "modes", "quadratic"], indirect=True)
@pytest.mark.parametrize(("noise", "calibrated"), [(True, False), (False, False), (True, True), (False, True)])
def test_draws_have_the_moments_of_the_predictions(case, noise, calibrated):
    model, (y,) = copy.deepcopy(case[0]), case[1]
    if getattr(model, "target_transform", None) and not noise:
        pytest.skip("functions without noise are those of the median")
    if calibrated:
        model.calibrate(X, 2 * y)
    mean, epistemic, aleatoric = (part.reshape(len(NEW), -1) for part in model.predict_parts(NEW))
    std = np.hypot(epistemic, aleatoric) if noise else epistemic
    draws = model.sample_y(NEW, 4000, random_state=2, noise=noise).reshape(*mean.shape, -1)
    assert (np.abs(draws.mean(axis=2) - mean) <= 5 * draws.std(axis=2) / np.sqrt(4000) + 1e-12).all()
    squares = (draws - mean[:, :, None]) ** 2
    assert (np.abs(squares.mean(axis=2) - std**2) <= 5 * squares.std(axis=2) / np.sqrt(4000) + 1e-12).all()


@pytest.mark.parametrize("case", [*PLAIN, "sequential", "local", "dvi", "sampled", "quadratic"], indirect=True)
def test_calibration_scales_every_deviation(case):
    model, (y,) = case
    calibrated = copy.deepcopy(model).calibrate(X, 2 * y)
    scale = calibrated.calibration_scale_ / model.calibration_scale_
    assert scale > 1.1
    np.testing.assert_allclose(calibrated.predict(NEW, True)[1], scale * model.predict(NEW, True)[1], rtol=1e-10)
    np.testing.assert_array_equal(calibrated.predict(NEW), model.predict(NEW))


@pytest.mark.parametrize("case", [*PLAIN, *SCALES, "sequential", "local"], indirect=True)
def test_fits_together_are_fits_alone(case):
    model, (y,) = case
    together, other = fit_many([clone(model), clone(model).set_params(max_iter=900)], X, y)
    np.testing.assert_allclose(together.predict(NEW, True), model.predict(NEW, True), rtol=1e-6, atol=1e-9)
    assert other.total_weight_ == model.total_weight_ and not hasattr(clone(together), "model_")


LIKELIHOODS = ["two classes", "classes", "counts", "censored", "survival", "ordinal", "mixed"]


@pytest.mark.parametrize("name", [*LIKELIHOODS, "varying noise", "heavy tails"])
def test_weights_are_repetitions(name):
    model, *targets = KINDS[name]
    model = clone(model).set_params(features="linear")
    weight = np.arange(len(X)) % 3
    again = np.repeat(np.arange(len(X)), weight)
    weighted = clone(model).fit(X, *targets, sample_weight=weight)
    repeated = clone(model).fit(X[again], *(own[again] for own in targets))
    assert weighted.total_weight_ == repeated.total_weight_ == weight.sum()
    groups = (GROUP[:20],) if name == "mixed" else ()
    predict = "predict_proba" if hasattr(model, "predict_proba") else "predict"
    found, expected = (getattr(own, predict)(NEW, *groups) for own in (weighted, repeated))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["linear", "counts", "censored", "survival", "mixed", "correlated", "pooled"])
def test_one_gross_target_is_warned_of_where_fit_was_called(name):
    model, y, *others = KINDS.get(name, (DirectRegressor(noise="constant"), Y))
    y = y.copy()
    y[7] = 1e9
    with pytest.warns(TargetWarning, match="1 of 120 targets are farther than 20 median absolute") as caught:
        clone(model).set_params(features="linear").fit(X, y, *others)
    assert caught[0].filename == __file__
