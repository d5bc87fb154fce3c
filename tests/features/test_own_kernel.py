"""Kernels of scikit-learn as kernels of `Nystroem`."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import (
    RBF,
    CompoundKernel,
    ConstantKernel,
    DotProduct,
    ExpSineSquared,
    Matern,
    PairwiseKernel,
    RationalQuadratic,
    WhiteKernel,
)

import pydirect
from pydirect import (
    DirectClassifier,
    DirectCountRegressor,
    DirectRegressor,
    DirectStreamRegressor,
    Fourier,
    Gaussian,
    Nystroem,
)
from pydirect.features.own_kernel import kernel_of, noise_of, text_of

RNG = np.random.default_rng(3)
X = RNG.uniform(0, 6, (60, 2))
Y = 5 * np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * RNG.standard_normal(60) + 40
NEW = RNG.uniform(0, 8, (9, 2))
SMOOTH = 4.0**2 * RBF([1.0, 3.0]) + WhiteKernel(0.2)
KERNELS = [
    SMOOTH,
    2.0 * Matern(2.0, nu=1.5) * RationalQuadratic() + WhiteKernel(),
    PERIODIC := 3.0 * ExpSineSquared(1.0, 3.1, periodicity_bounds="fixed") + DotProduct() + WhiteKernel(),
    (DotProduct() ** 2 + RBF()) * ConstantKernel(0.5, (1e-3, 1e4)),
    PairwiseKernel(metric="laplacian") + WhiteKernel(),
]


class Wrong(RBF):
    """No covariance."""

    def __call__(self, X, Y=None, eval_gradient=False):
        found = super().__call__(X, Y, eval_gradient)
        return (1 - found[0], found[1]) if eval_gradient else 1 - found


def rows_for(kernel):
    """Return rows, and new ones: a periodic kernel is no covariance in two dimensions."""
    return (X[:, :1], NEW[:, :1]) if kernel is PERIODIC else (X, NEW)


def fitted(kernel, **options):
    return DirectRegressor(Nystroem(kernel=kernel), **options).fit(rows_for(kernel)[0], Y)


@pytest.mark.filterwarnings("ignore:the optimum of the kernel is at a bound")
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_predictions_are_those_of_the_exact_process(kernel):
    (x, new), model = rows_for(kernel), fitted(kernel, posterior=Gaussian(n_noise_levels=1))
    own, t = model.features_.map.hyperparameters, model.prior_scale_[0] ** 2
    noise = model.noise_variance_
    covariance = t * own.kernel(x, x) + noise * np.eye(len(x))
    cross = t * own.kernel(new, x)
    mean = Y.mean() + cross @ np.linalg.solve(covariance, Y - Y.mean())
    joint = t * own.kernel(new, new) - cross @ np.linalg.solve(covariance, cross.T) + noise * np.eye(len(new))
    found, cov = model.predict(new, return_cov=True)
    scale = Y.std()
    np.testing.assert_allclose(found, mean, atol=1e-3 * scale)
    np.testing.assert_allclose(cov, joint, atol=1e-3 * scale**2)
    np.testing.assert_allclose(np.sqrt(cov.diagonal()), model.predict(new, return_std=True)[1], rtol=1e-8)


def test_hyperparameters_are_those_of_scikit_learn():
    model = fitted(SMOOTH)
    other = GaussianProcessRegressor(SMOOTH).fit(X, Y - Y.mean())
    theta = model.features_.map.hyperparameters.kernel.theta
    value = other.log_marginal_likelihood(theta)
    assert value == pytest.approx(other.log_marginal_likelihood_value_, abs=1e-3)
    mean, std = other.predict(NEW, return_std=True)
    found = model.predict(NEW, return_std=True)
    np.testing.assert_allclose(found[0], mean + Y.mean(), atol=0.02)
    np.testing.assert_allclose(found[1], std, rtol=0.02)
    assert SMOOTH.theta[0] == pytest.approx(np.log(16.0))  # the user's object stays as it is


def test_noise_of_a_kernel():
    assert noise_of(SMOOTH, X) == pytest.approx(0.2)
    assert noise_of(2.0 * WhiteKernel(0.3) + RBF(), X) == pytest.approx(0.6)
    assert noise_of(RBF(), X) == 0.0
    with pytest.raises(ValueError, match="same noise for all rows"):
        noise_of(DotProduct() * WhiteKernel(), X)
    free = fitted(4.0**2 * RBF([1.0, 3.0])).noise_variance_  # noise is found in any case
    assert free == pytest.approx(fitted(SMOOTH).noise_variance_, rel=0.05)


def test_fewer_landmarks_than_rows_widen_predictions():
    exact, few = fitted(SMOOTH), fitted(SMOOTH, n_basis_functions=25)
    assert few.features_.n_weights == 25
    mean, std = few.predict(NEW, return_std=True)
    np.testing.assert_allclose(mean, exact.predict(NEW), atol=1.0)
    assert (std > 0.9 * exact.predict(NEW, return_std=True)[1]).all()
    drawn = few.sample_y(NEW, 4000, noise=False)
    np.testing.assert_allclose(drawn.std(axis=1), few.predict_parts(NEW)[1], rtol=0.1)


def test_files_copies_and_searches(tmp_path):
    model, new = fitted(PERIODIC), NEW[:, :1]
    model.save(tmp_path / "model.npz")
    loaded = pydirect.load(tmp_path / "model.npz")
    assert loaded.features.kernel == PERIODIC
    for other in (loaded, pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(other.predict(new), model.predict(new))
    assert clone(model).set_params(features__kernel__k2__noise_level=2.0).features.kernel.k2.noise_level == 2.0
    assert "ExpSineSquared" in model.summary()
    for kernel in KERNELS:
        assert kernel_of(text_of(kernel)) == kernel


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"class": "Pipeline", "parameters": {}}', "class of scikit-learn"),
        ('{"class": "RBF", "parameters": {"length": 1}}', "class of scikit-learn"),
    ],
)
def test_files_name_known_classes_alone(text, message):
    with pytest.raises(ValueError, match=message):
        kernel_of(text)


@pytest.mark.parametrize(
    ("features", "error", "message"),
    [
        (Nystroem(kernel="rbf"), TypeError, "object of sklearn.gaussian_process.kernels"),
        (Nystroem(kernel=CompoundKernel([RBF(), RBF()])), TypeError, "object of sklearn.gaussian_process.kernels"),
        (Nystroem(kernel=RBF(), length_scale=1.0), ValueError, "left out with a kernel"),
        (Fourier(kernel=RBF()), ValueError, r"Nystroem\(kernel"),
        (Nystroem(kernel=Wrong()), ValueError, "positive definite"),
        (Nystroem(kernel=PairwiseKernel(metric="sigmoid", gamma=-3.0)), ValueError, "positive definite|finite"),
        (Nystroem(kernel=PERIODIC), ValueError, "positive definite"),
        (Nystroem(kernel=DotProduct() * WhiteKernel()), ValueError, "same noise"),
        (Nystroem(kernel=RBF([1.0, 1.0, 1.0])), ValueError, "dimension"),
    ],
)
def test_wrong_kernels_are_refused(features, error, message):
    with pytest.raises(error, match=message):
        DirectRegressor(features).fit(X, Y)


def test_who_takes_no_kernel():
    for model, y in ((DirectClassifier(), Y > 40), (DirectCountRegressor(), np.round(Y))):
        with pytest.raises(ValueError, match="for DirectRegressor"):
            model.set_params(features=Nystroem(kernel=RBF())).fit(X, y)
    with pytest.raises(ValueError, match="for DirectRegressor"):
        DirectStreamRegressor(Nystroem(kernel=RBF())).fit(X, Y)
    model = fitted(SMOOTH)
    with pytest.raises(ValueError, match="one of scikit-learn"):
        fitted(SMOOTH, local=8)
    with pytest.raises(TypeError, match="gradients"):
        model.predict_gradient(NEW)
    with pytest.raises(ValueError, match="sample_y"):
        model.sample_functions(2)
    with pytest.raises(ValueError, match="quantised"):
        model.quantize()


def test_joint_covariance():
    two = np.column_stack([Y, np.cos(X[:, 0])])
    model = DirectRegressor(n_basis_functions=30, noise="constant", target_transform=None).fit(X, two)
    mean, cov = model.predict(NEW, return_cov=True)
    assert mean.shape == (9, 2) and cov.shape == (9, 9, 2)
    std = model.predict(NEW, return_std=True)[1]
    np.testing.assert_allclose(np.sqrt(np.einsum("iik->ik", cov)), std, rtol=1e-8)
    drawn = model.sample_y(NEW, 20_000, noise=True)
    for k in range(2):
        np.testing.assert_allclose(np.corrcoef(drawn[:, k]), cov[..., k] / np.outer(std[:, k], std[:, k]), atol=0.04)
    with pytest.raises(ValueError, match="return_std"):
        model.predict(NEW, return_std=True, return_cov=True)
    with pytest.raises(ValueError, match="target_transform=None"):
        DirectRegressor(target_transform="log").fit(X, Y).predict(NEW, return_cov=True)
    with pytest.raises(ValueError, match="discrete weights"):
        DirectRegressor(posterior="sequential", n_basis_functions=20).fit(X, Y).predict(NEW, return_cov=True)


@pytest.mark.parametrize(
    ("kernel", "x", "y", "name"),
    [
        (RBF(length_scale_bounds=(1e-5, 1e-2)) + WhiteKernel(0.1), X, Y, "at a bound, k1__length_scale at 0.01:"),
        (RBF(1e-4) + WhiteKernel(0.1), X * 100, Y, "rows of X are uncorrelated under RBF"),
        (RBF() + WhiteKernel(), X, Y * 1e4 + 1e6, r"k2__noise_level at 1e\+05:"),
    ],
)
def test_an_optimum_at_a_bound_or_of_far_rows_is_told(kernel, x, y, name):
    with pytest.warns(ConvergenceWarning, match=name) as told:
        DirectRegressor(Nystroem(kernel=kernel), target_transform=None).fit(x, y)
    assert told[0].filename == __file__


def test_a_kernel_of_noise_alone_is_refused():
    with pytest.raises(ValueError, match="kernel must have a part beside noise"):
        fitted(WhiteKernel())
