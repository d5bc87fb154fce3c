"""The sampler for Optuna: every kind of parameter and trial, and suggestions that are better than chance."""

import importlib
import pickle
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose

optuna = pytest.importorskip("optuna")
optuna.logging.set_verbosity(optuna.logging.ERROR)

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution  # noqa: E402
from optuna.trial import TrialState, create_trial  # noqa: E402

from pydirect.adapters import DirectSampler  # noqa: E402
from pydirect.adapters.optuna import Parameter  # noqa: E402
from pydirect.decisions.box import Box  # noqa: E402

DISTRIBUTIONS = [
    FloatDistribution(-3.0, 5.0),
    FloatDistribution(1e-5, 1e2, log=True),
    FloatDistribution(0.1, 0.95, step=0.05),
    IntDistribution(-4, 9),
    IntDistribution(1, 1000, log=True),
    IntDistribution(10, 100, step=15),
    IntDistribution(0, 10**6),
    CategoricalDistribution(["a", None, 3.5, True]),
]


def square(trial):
    x, y = trial.suggest_float("x", -2, 2), trial.suggest_float("y", -2, 2)
    return (x - 0.7) ** 2 + (y + 0.4) ** 2


def studied(objective, n, seed=0, n_startup_trials=6, **options):
    sampler = DirectSampler(seed=seed, n_startup_trials=n_startup_trials)
    study = optuna.create_study(sampler=sampler, **options)
    study.optimize(objective, n_trials=n, catch=(RuntimeError,))
    return study


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=str)
def test_parameters_go_to_the_box_and_back(distribution):
    parameter = Parameter(distribution)
    box = Box([parameter.levels], [parameter.is_category])
    for u in np.linspace(0, 1 - 1e-9, 30):
        own = box.snapped(np.array([[u]]))[0, 0]
        value = parameter.from_unit(own)
        assert distribution._contains(distribution.to_internal_repr(value))
        again = parameter.to_unit(value)
        assert_allclose(again, own, atol=1e-6)
        found = parameter.from_unit(again)
        assert found == pytest.approx(value) if isinstance(value, float) else found == value
    assert all(0 <= parameter.to_unit(parameter.from_unit(u)) for u in (0.0, 0.5))


def test_steps_are_equally_likely():
    parameter = Parameter(IntDistribution(1, 4))
    values = [parameter.from_unit(u) for u in np.linspace(0, 1, 1000)]
    assert_allclose(np.bincount(values)[1:], 250, atol=2)


@pytest.mark.slow
def test_a_minimum_is_found_and_a_maximum():
    assert studied(square, 18).best_value < 1e-3
    study = studied(lambda trial: -square(trial), 18, direction="maximize")
    assert study.best_value > -1e-3


def test_a_pickled_sampler_goes_on_as_it_would_have():
    study = studied(square, 8)
    study.sampler, kept = pickle.loads(pickle.dumps(study.sampler)), study.sampler
    copied = study.ask()
    found = square(copied)
    study.tell(copied, state=TrialState.FAIL)
    fresh = studied(square, 8)
    trial = fresh.ask()
    assert square(trial) == found
    assert kept is not study.sampler


def test_numbers_integers_and_categories_are_searched_together():
    def mixed(trial):
        rate = trial.suggest_float("rate", 1e-4, 1, log=True)
        depth = trial.suggest_int("depth", 1, 12)
        kind = trial.suggest_categorical("kind", ["a", "b", "c"])
        return (np.log10(rate) + 2) ** 2 + 0.05 * (depth - 5) ** 2 + {"a": 1, "b": 0, "c": 0.5}[kind]

    study = studied(mixed, 24)
    assert study.best_params["kind"] == "b"
    assert study.best_value < 0.1


@pytest.mark.slow
def test_conditional_parameters_are_searched_together():
    def conditional(trial):
        if trial.suggest_categorical("kind", ["line", "square"]) == "line":
            return 1 + trial.suggest_float("slope", 0, 1)
        return (trial.suggest_float("x", -1, 1) - 0.6) ** 2

    study = studied(conditional, 22)
    assert study.best_value < 0.01
    assert all(len(trial.params) == 2 for trial in study.trials)


def test_constraints_are_kept():
    def objective(trial):
        x, y = trial.suggest_float("x", 0, 1), trial.suggest_float("y", 0, 1)
        trial.set_constraint("circle", x * x + y * y - 1)
        return -x - y

    study = studied(objective, 20)
    assert -np.sqrt(2) <= study.best_value < -np.sqrt(2) + 0.03
    assert max(study.best_trial.constraints.values()) <= 0


@pytest.mark.slow
def test_a_front_of_several_objectives_is_found():
    def objective(trial):
        x, y = trial.suggest_float("x", 0, 1), trial.suggest_float("y", 0, 1)
        return x**2 + y, (x - 1) ** 2 + y

    study = studied(objective, 24, directions=["minimize", "minimize"])
    values = np.array([trial.values for trial in study.best_trials])
    assert len(values) >= 6
    assert np.sqrt(values).sum(axis=1).max() < 1.3  # 1 on the front
    assert np.ptp(values[:, 0]) > 0.4


def test_pruned_and_failed_trials_are_learned_from():
    def objective(trial):
        x = trial.suggest_float("x", 0, 1)
        if x > 0.7:
            raise RuntimeError
        trial.report(1 - x, 1)
        if x < 0.3:
            raise optuna.TrialPruned
        return 1 - x

    study = studied(objective, 16)
    assert study.best_value < 0.35
    sampler = study.sampler
    assert sampler._search.n_known == sum(t.state != TrialState.FAIL for t in study.trials[:-1])


def test_running_trials_are_avoided_and_enqueued_ones_used():
    study = studied(square, 8)
    study.enqueue_trial({"x": 1.5, "y": -1.5})
    trials = [study.ask() for _ in range(4)]
    values = np.array([[t.suggest_float("x", -2, 2), t.suggest_float("y", -2, 2)] for t in trials])
    assert_allclose(values[0], [1.5, -1.5])
    assert np.abs(values[1:, None] - values[1:]).max(axis=2)[np.triu_indices(3, 1)].min() > 1e-3


def test_trials_of_others_and_new_parameters_are_taken_in():
    study = studied(square, 7)
    distributions = {"x": FloatDistribution(-2, 2), "y": FloatDistribution(-2, 2), "z": IntDistribution(0, 3)}
    study.add_trial(create_trial(params={"x": 0.7, "y": -0.4, "z": 1}, distributions=distributions, value=-1.0))
    study.add_trial(create_trial(params={"x": 0.5}, distributions={"x": FloatDistribution(0, 1)}, value=np.inf))
    trial = study.ask()
    assert 0 <= trial.suggest_int("z", 0, 3) <= 3
    assert 0 <= trial.suggest_float("x", 0, 1) <= 1  # its range has changed: by chance
    assert set(trial.relative_params) == {"y", "z"}


@pytest.mark.parametrize("size", [np.inf, -np.inf, 1e300])
def test_values_that_nothing_can_be_learned_from_do_not_end_a_study(size):
    study = studied(lambda trial: size * trial.suggest_float("x", 0.1, 1), 13)
    assert len(study.trials) == 13


def test_bad_options_are_refused():
    with pytest.raises(ValueError, match="n_startup_trials must be at least 1, got 0"):
        DirectSampler(n_startup_trials=0)


def test_a_missing_optuna_is_named_with_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna.distributions", None)
    monkeypatch.delitem(sys.modules, "pydirect.adapters.optuna")
    with pytest.raises(ImportError, match=r"DirectSampler needs Optuna: pip install 'pydirect\[optuna\]'"):
        importlib.import_module("pydirect.adapters.optuna")
