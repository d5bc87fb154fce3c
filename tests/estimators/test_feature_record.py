"""Rows are never counted by other features than those before, and a model that nobody changed is never refused."""

import copy
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import RBFSampler
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, PolynomialFeatures, StandardScaler

import pydirect
from pydirect import DirectClassifier, DirectRegressor, DirectSearchCV, Fourier, Polynomial, fit_many
from pydirect.persistence.container import FileFormatError

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((30, 2)), RNG.standard_normal(30)
LABELS = np.where(Y > 0, "a", "b")

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def squares(x):
    return x**2


def imputed():
    return make_pipeline(SimpleImputer(), PolynomialFeatures(2))  # one of its parameters is NaN


def scaled():
    return make_pipeline(StandardScaler(), FunctionTransformer(lambda x: x**2))


def sampler():
    return RBFSampler(n_components=5, random_state=np.random.RandomState(0))


# Parameters, what changes the feature map, and what does not.
KINDS = {
    "polynomial": (
        {"features": Polynomial()},
        {"features__degree": 3},
        {"features__degree": np.int64(2), "n_basis_functions": 50},
    ),
    "fourier": (
        {"features": Fourier(length_scale=1.0), "n_basis_functions": 8},
        {"features__length_scale": [1.0, 2.0]},
        {"features__length_scale": np.ones(2), "max_iter": 900},
    ),
    "another kind": ({"features": "polynomial"}, {"features": "linear"}, {"n_basis_functions": 50}),
    "random state": (
        {"features": Fourier(length_scale=1.0), "n_basis_functions": 8, "random_state": np.random.RandomState(0)},
        {"random_state": 3},
        {"random_state": np.random.RandomState(1)},
    ),
    "pipeline": ({"features": imputed()}, {"features__polynomialfeatures__degree": 3}, {"features": imputed()}),
    "lambda": ({"features": scaled()}, {"features__functiontransformer__func": squares}, {}),
    "sampler": ({"features": sampler()}, {"features__gamma": 0.5}, {"features": sampler()}),
}
ORIGINS = ("partial_fit", "deep copy", "fit_many", "search", "pickle", "file", "checkpoint")
DOORS = {
    "partial_fit": lambda model, sums: model.partial_fit(X, Y),
    "forget": lambda model, sums: model.forget(X, Y),
    "fit_stream": lambda model, sums: model.fit_stream(X, Y, keep_features=True),
    "new_statistics": lambda model, sums: model.new_statistics(),
    "fit_statistics": lambda model, sums: model.fit_statistics(sums),
}


def own_name(changed):
    """Return the name of a changed parameter as messages have it."""
    return next(iter(changed))


def summed(model):
    return model.fit_statistics(model.new_statistics().update(X, Y))


def from_origin(origin, model, path):
    if origin in ("fit_many", "search"):
        alike = copy.deepcopy(model).set_params(max_iter=700)
        if origin == "fit_many":
            return fit_many([alike, model], X, Y)[1]
        return DirectSearchCV(alike, {"max_iter": [700, 900]}, cv=2).fit(X, Y).best_estimator_
    if origin == "file":
        model.fit(X, Y).save(path)
        return pydirect.load(path)
    if origin == "checkpoint":
        for _ in range(2):
            model.fit_stream(X, Y, checkpoint=path)
        return model
    model.fit_features(X, Y).partial_fit(X, Y)
    copies = {"pickle": lambda m: pickle.loads(pickle.dumps(m)), "deep copy": copy.deepcopy}
    return copies.get(origin, lambda m: m)(model)


def cases():
    for kind in KINDS:
        for origin in ORIGINS:
            in_files = kind in ("polynomial", "fourier", "another kind")
            if (in_files or origin not in ("file", "checkpoint")) and (
                kind != "lambda" or origin not in ("pickle", "deep copy")
            ):
                yield kind, origin


@pytest.mark.parametrize(("kind", "origin"), list(cases()))
def test_every_door_refuses_changed_features_and_takes_equal_ones(kind, origin, tmp_path):
    parameters, changed, equal = copy.deepcopy(KINDS[kind])
    model = from_origin(origin, DirectRegressor(**parameters), tmp_path / "file.pydirect")
    before = {name: model.get_params()[name] for name in changed}
    summed(model).set_params(**equal).partial_fit(X, Y)
    sums = model.statistics_
    model.set_params(**changed)
    for door in DOORS.values():
        with pytest.raises(ValueError, match=f"{own_name(changed)}.* must be as when the feature map was fixed"):
            door(model, sums)
    assert model.statistics_ is sums
    model.set_params(**before)
    for door in DOORS.values():
        door(model, sums)
    assert model.set_params(**changed).fit_features(X, Y).partial_fit(X, Y).total_weight_ == 30


@pytest.mark.parametrize("origin", ["stream", "fit", "pickle", "file"])
def test_streams_of_labels_refuse_changed_features_and_take_equal_ones(origin, tmp_path):
    model = DirectClassifier(Fourier(length_scale=[1.0, 1.0]), 8)
    model = model.fit_stream(X, LABELS) if origin == "stream" else model.fit(X, LABELS)
    if origin == "file":
        model.save(tmp_path / "file.pydirect")
        model = pydirect.load(tmp_path / "file.pydirect")
    elif origin == "pickle":
        model = pickle.loads(pickle.dumps(model))
    model.set_params(features__length_scale=1.0, max_iter=900).fit_stream(X, LABELS, keep_features=True)
    with pytest.raises(ValueError, match="length_scale must be as when the feature map was fixed"):
        model.set_params(features__length_scale=2.0).fit_stream(X, LABELS, keep_features=True)


def test_an_array_changed_in_place_is_noticed():
    model = DirectRegressor(Fourier(length_scale=np.ones(2)), 8).fit_features(X, Y)
    model.features.length_scale[1] = 9.0
    with pytest.raises(ValueError, match="length_scale must be as when"):
        model.partial_fit(X, Y)


@pytest.mark.parametrize(("estimator", "data"), [(DirectRegressor, (X, Y)), (DirectClassifier, (X, LABELS))])
def test_a_file_tells_what_was_fixed_and_not_what_was_set_later(estimator, data, tmp_path):
    estimator(Polynomial()).fit(*data).set_params(features__degree=3).save(tmp_path / "file.pydirect")
    model = pydirect.load(tmp_path / "file.pydirect")
    with pytest.raises(ValueError, match="degree must be as when"):
        model.fit_stream(*data, keep_features=True)
    assert model.set_params(features__degree=2).fit_stream(*data, keep_features=True).total_weight_ == 30


@pytest.mark.parametrize("kind", ["polynomial", "fourier"])
def test_a_checkpoint_goes_on_unless_the_features_would_be_others(kind, tmp_path):
    path, (parameters, changed, equal) = tmp_path / "file.pydirect", KINDS[kind]
    first = DirectRegressor(**parameters).fit_stream(X, Y, checkpoint=path)
    again = clone(first).set_params(**equal).fit_stream(X, Y, checkpoint=path)
    assert again.predict(X).tobytes() == first.predict(X).tobytes()
    for other in (changed, {"features__block_dtype": "float32"}):
        with pytest.raises(FileFormatError, match=f"with other parameters: {own_name(other)}"):
            clone(first).set_params(**other).fit_stream(X, Y, checkpoint=path)


def test_global_random_numbers_serve_many_models():
    models = [DirectRegressor(Fourier(length_scale=1.0), 8, random_state=np.random) for _ in range(2)]
    for model in fit_many(models, X, Y):
        assert summed(model).total_weight_ == 30


@pytest.mark.parametrize("length_scale", [[1.0], [1.0, 1.0, 1.0]])
def test_an_error_of_one_of_many_models_is_not_hidden_by_the_others(length_scale):
    models = [DirectRegressor(Fourier(length_scale=scale), 8) for scale in (1.0, length_scale)]
    with pytest.raises(ValueError, match=r"length_scale must have shape \(2,\)"):
        fit_many(models, X, Y)
