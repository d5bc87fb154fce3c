"""Quantised draws of sequential posteriors: floats and integers, files, layouts of the codes."""

from types import SimpleNamespace

import numpy as np
import pytest

from pydirect import quantize
from pydirect.direct.sequential import fit_sequential
from pydirect.features.basis import Basis
from pydirect.features.inputs import InputMap
from pydirect.features.maps import FourierFeatures, LinearFeatures
from pydirect.quantized.fitted import FittedBasisModel, Outputs
from pydirect.quantized.predictors import load_quantized
from pydirect.quantized.program import IntegerArithmeticError
from pydirect.statistics.gaussian import collect_statistics

pytestmark = pytest.mark.filterwarnings("ignore::pydirect.direct.sequential.CoarseLevelsWarning")


def problem(n=200, d=3, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d)) * np.arange(1, d + 1) + 10
    z = (x - 10) / np.arange(1, d + 1)
    f = np.sin(z[:, 0]) + 0.3 * z[:, 1] + 0.1 * rng.standard_normal(n)
    return x, np.stack([f, 3 * z[:, 1] - 0.2 * f], axis=1)


def features_of(kind, d):
    rng = np.random.default_rng(1)
    if kind == "fourier":
        return FourierFeatures(rng.standard_normal((d, 20)), np.full(20, 0.2), np.full(d, 0.5), 1.0)
    return LinearFeatures(d)


def fitted_model(kind="fourier", n_outputs=1, n_draws=8, **options):
    """Return an estimator of sequential posteriors that `quantize` takes, rows, and features' rows."""
    x, y = problem()
    input_map = InputMap.fit(x, None, rank=False)
    basis = Basis(input_map, features_of(kind, x.shape[1]))
    y = y[:, :n_outputs]
    centre, spread = y.mean(axis=0), y.std(axis=0)
    inputs = np.ascontiguousarray(basis.inputs(x))
    statistics = collect_statistics(basis.map, inputs, (y - centre) / spread)
    posteriors = [fit_sequential(statistics.target(k), 0.02, n_draws=n_draws, **options) for k in range(n_outputs)]
    outputs = Outputs(
        scale=spread,
        offset=centre,
        noise=0.02 * spread**2,
        calibration=1.0,
        one_dimensional=n_outputs == 1,
        n_features_in=x.shape[1],
    )
    model = FittedBasisModel(basis, posteriors, np.ones(n_outputs), 0.0, outputs)
    return SimpleNamespace(quantizable=lambda: model), x, basis.map.transform(inputs)


@pytest.mark.parametrize("kind", ["fourier", "linear"])
def test_samples_are_the_first_draws_and_one_is_the_nearest_vector(kind):
    estimator, x, phi = fitted_model(kind)
    model = estimator.quantizable()
    posterior, outputs = model.posteriors[0], model.outputs
    for options, weights in (
        ({"n_samples": 4}, posterior.draws[:4]),
        ({"n_samples": 8}, posterior.draws),
        ({"n_samples": 1}, posterior.values(posterior.most_probable()[None])),
    ):
        functions = outputs.offset + outputs.scale * phi @ weights.T
        quantised = quantize(estimator, X=x, **options)
        np.testing.assert_allclose(quantised.functions(x)[:, 0], functions, atol=1e-12 * np.abs(functions).max())
        mean, std = quantised.predict(x, return_std=True)
        np.testing.assert_allclose(std, np.sqrt(functions.var(axis=1) + outputs.noise))
        integer = quantised.with_arithmetic("integer")
        np.testing.assert_array_equal(integer.totals(x), integer.program.totals(x))
        assert np.abs(integer.predict(x) - mean).max() <= 0.01 * functions.std()


def test_more_samples_than_kept_draws_are_refused():
    estimator, _, _ = fitted_model()
    with pytest.raises(ValueError, match="n_samples must be at most n_draws of the fit, 8"):
        quantize(estimator, 9)


def test_a_kept_factor_gives_more_samples_than_draws_were_kept():
    estimator, x, _ = fitted_model(keep_factor=True)
    assert quantize(estimator, 9, X=x).codes.shape[1] == 9


@pytest.mark.parametrize(("n_levels", "bits"), [(3, 2), (7, 4), (15, 4)])
def test_levels_are_packed_and_saved(n_levels, bits, tmp_path):
    estimator, x, _ = fitted_model(n_levels=n_levels)
    quantised = quantize(estimator, 8)
    assert quantised.packed.bits == bits
    assert quantised.packed.packed.nbytes == -(-quantised.packed.shape[0] * 8 * bits // 8)
    quantised.save(tmp_path / "m")
    np.testing.assert_array_equal(load_quantized(tmp_path / "m").predict(x), quantised.predict(x))


def test_gains_of_integers_are_the_exponents():
    estimator, _, _ = fitted_model("linear")
    exponents = estimator.quantizable().posteriors[0].level_exponents[:-1]  # without the constant
    gain = np.unique(quantize(estimator, 8).program.gain[:-1])
    assert len(gain) == len(np.unique(exponents)) > 1
    np.testing.assert_allclose(gain / gain[-1], 2.0 ** np.unique(exponents - exponents.max()), atol=1e-3)


def test_outputs_of_different_exponents_have_no_integer_form():
    estimator, x, _ = fitted_model(n_outputs=2)
    assert quantize(estimator, 4).functions(x).shape == (len(x), 2, 4)
    with pytest.raises(IntegerArithmeticError, match=r"all outputs share: fit with Sequential\(level"):
        quantize(estimator, 4, arithmetic="integer")


def test_the_functions_of_a_frequency_share_an_exponent(data, raw):
    x, exponents = data()[0], raw.posterior_.level_exponents
    np.testing.assert_array_equal(exponents[:40], exponents[40:80])
    integer = quantize(raw, 4, X=x, arithmetic="integer")
    assert len(np.unique(integer.program.gain)) <= len(np.unique(exponents)) + 4
    np.testing.assert_array_equal(integer.totals(x), integer.program.totals(x))


def test_tied_and_given_exponents():
    estimator, _, _ = fitted_model()
    model = estimator.quantizable()
    plain, ties = model.posteriors[0], model.basis.map.pairs
    tied = fitted_model(ties=ties)[0].quantizable().posteriors[0]
    largest = [plain.level_exponents[ties == group].max() for group in ties]
    np.testing.assert_array_equal(tied.level_exponents, largest)
    given = fitted_model(level_exponents=largest)[0].quantizable().posteriors[0]
    np.testing.assert_array_equal(given.codes, tied.codes)
    for options, message in (
        ({"ties": ties - 1}, "ties must be integers from 0 to 43"),
        ({"ties": ties[1:]}, "ties must have shape"),
        ({"level_exponents": ties + 0.5}, "level_exponents must be integers from -30 to 30"),
        (
            {"level_exponents": ties, "level_scales": "shared"},
            "level_exponents must be None with level_scales='shared'",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            fitted_model(**options)
