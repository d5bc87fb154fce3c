"""Every parameter of every estimator, and of the objects they take, is checked by its name before a fit."""

import numpy as np
import pytest
from sklearn.base import clone

from pydirect import (
    Columns,
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
    Gaussian,
    MeanField,
    MixturePrior,
    MonteCarloBNNClassifier,
    MonteCarloBNNRegressor,
    Nystroem,
    Polynomial,
    PooledClassifier,
    PooledRegressor,
    QuadraticBNNRegressor,
    Sequential,
    TrainingSchedule,
)
from pydirect.estimators import CorrelatedRegressor

X = np.random.default_rng(0).standard_normal((30, 3))
Y, CLASSES = X[:, 0], np.arange(30) % 3
# Estimators, and what they are fitted to beside X.
ESTIMATORS = {
    DirectRegressor: (Y,),
    DirectClassifier: (CLASSES,),
    DirectCountRegressor: (np.arange(30),),
    DirectCensoredRegressor: (Y,),
    DirectSurvivalRegressor: (np.exp(Y),),
    DirectOrdinalClassifier: (CLASSES,),
    DirectMixedRegressor: (Y, CLASSES),
    DirectStreamRegressor: (Y,),
    CorrelatedRegressor: (X[:, :2],),
    PooledClassifier: (CLASSES,),
    PooledRegressor: (Y,),
    DVIRegressor: (Y,),
    DVIClassifier: (CLASSES,),
    MonteCarloBNNRegressor: (Y,),
    MonteCarloBNNClassifier: (CLASSES,),
    QuadraticBNNRegressor: (Y,),
}
OBJECTS = [
    *((DirectRegressor, "features", cls) for cls in (Nystroem, Fourier, Polynomial)),
    *((DirectRegressor, "posterior", cls) for cls in (Gaussian, Sequential, MeanField)),
    (DirectRegressor, "columns", Columns),
    (DirectClassifier, "posterior", Sequential),
    (DVIRegressor, "schedule", TrainingSchedule),
    (MonteCarloBNNClassifier, "schedule", TrainingSchedule),
]
WRONG = [type("Odd", (), {})(), "no such", -1.5, [None], np.nan]
# What is wrong for parameters of these names wherever they are.
WRONG_OF = {
    "features": ["fouriers", 3, Gaussian()],
    "n_basis_functions": [0, 10.0, True, np.float64(20)],
    "posterior": ["rotated", 3, Nystroem()],
    "prior": ["normal", ("cauchy", 1.0)],
    "noise": ["none", 0, -1.0],
    "random_state": [-1, np.random.default_rng(0)],
    "n_threads": [0, "all", 1.0],
    "max_iter": [0, 2.5],
    "verbose": [-1, "x"],
    "hidden_layer_sizes": [(), (0,), (2.5,)],
    "n_restarts": [0],
    "n_draws": [0],
    "learning_rate": [0.0, np.inf],
    "n_levels": [1, 1000, True],
    "n_components": [0, 65],
    "length_scale": [0.0, [1.0, 2.0], [1.0, np.nan, 1.0]],
    "degree": [0, 50],
    "window": [0],
    "half_life": [0.0],
    "n_first_rows": [2],
    "bias": [1],
    "whiten": ["no"],
    "engine": ["gpu"],
    "local": [True, 1, 2.5],
}


def is_refused(make, targets, name):
    model = None
    with pytest.raises((TypeError, ValueError), match=rf"\b{name}\b.* must "):
        model = make()
        model.fit(X, *targets)
    assert not hasattr(model, "model_")


def wrong_values(name):
    """Values that no parameter takes, and those that are wrong for this one."""
    return [*WRONG[: 3 if name == "target_transform" else None], *WRONG_OF.get(name, ())]  # a list has one per output


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda cls: cls.__name__)
def test_parameters_are_refused_by_name_and_leave_no_model(estimator):
    for name in estimator().get_params(deep=False):
        for value in wrong_values(name):
            is_refused(lambda own={name: value}: estimator(**own), ESTIMATORS[estimator], name)


@pytest.mark.parametrize(("estimator", "name", "kind"), OBJECTS, ids=lambda v: getattr(v, "__name__", v))
def test_parameters_of_objects_are_refused_by_name(estimator, name, kind):
    for field in vars(kind()):
        for value in wrong_values(field):
            is_refused(lambda own={field: value}: estimator(**{name: kind(**own)}), ESTIMATORS[estimator], field)


SWITCHED = MeanField(prior=MixturePrior.switched([0, 1]))
HEAVY = MixturePrior(["laplace", "gaussian"])
COMBINATIONS = [
    (DirectRegressor(features=Polynomial(degree=50)), "degree must give at most 20000"),
    (DirectRegressor(posterior=3), "posterior must be a name or an object of Gaussian"),
    (DirectRegressor("linear", posterior=Sequential(levels=np.ones((9, 3)))), "levels must be one ascending row"),
    (DirectRegressor(posterior=Sequential(prior=HEAVY)), "prior must factorise"),
    (DirectRegressor("linear", posterior=SWITCHED), "groups must have one number per column"),
    (DirectRegressor("polynomial", posterior=SWITCHED), "groups must have one number per weight"),
    (DirectRegressor(local=8, noise=0.1), "local must be 'auto' or False with .*noise"),
    (DirectRegressor(noise="varying", posterior="sequential"), "needs posterior='gaussian'"),
    (DirectClassifier(bound="softmax", posterior="mean_field"), "got 'softmax'"),
    (DirectClassifier(posterior=MeanField(n_components=2)), r"MeanField\(n_components=...\) must be 1 for classes"),
    (DirectClassifier(posterior=MeanField(prior=HEAVY)), "prior must factorise"),
    (DirectClassifier(posterior="sequential", bound="exponential"), "bound must be 'softmax' with posterior="),
    (DirectClassifier(bound="exponential"), "bound must be 'softmax' or 'jaakkola' with posterior='gaussian'"),
    (DirectClassifier(posterior=Sequential(n_levels=4)), "n_levels must be odd with level_scales='own'"),
    (DirectClassifier(class_weight={0: 1.0, 1: 0.0, 2: 0.0}), "at least two classes, got one class, 0"),
    (PooledRegressor("precomputed"), "features must be built in"),
    (DirectStreamRegressor(half_life=5.0, window=5), "window must be None with a half_life"),
    (DVIRegressor(inference="mcvi", schedule=TrainingSchedule(optimizer="lbfgs")), "optimizer must be 'adam'"),
    (DVIRegressor(skip_connections=True), "hidden_layer_sizes must hold two equal widths in turn for skips"),
    (DVIRegressor((4,), activation="heaviside", inference="map"), "inference must be 'dvi' for activation='heaviside'"),
    (DVIRegressor(prior=1e-200), r"prior must hold variances from 1e-100 to 1e\+100, got 1e-200"),
    (MonteCarloBNNRegressor(sampling="pre_activations", posterior="radial"), "sampling must be 'weights' but for"),
    (MonteCarloBNNRegressor(schedule=TrainingSchedule(optimizer="adam+lbfgs")), "optimizer must be 'adam' for"),
    (QuadraticBNNRegressor(hidden_layer_sizes=(30, 30, 30)), "hidden_layer_sizes must be smaller"),
    (QuadraticBNNRegressor(prior="spike_and_slab"), "use n_regrids=0"),
    (QuadraticBNNRegressor(n_levels=2), "n_levels must be at least 5"),
]


@pytest.mark.parametrize(("model", "message"), COMBINATIONS, ids=str)
def test_parameters_that_do_not_go_together_are_refused_with_the_reason(model, message):
    with pytest.raises((TypeError, ValueError), match=message):
        clone(model).fit(X, *ESTIMATORS[type(model)])
