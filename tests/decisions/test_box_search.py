"""The search of a box: its columns, criteria beside integrals and differences, ascent, and what it finds."""

from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad
from scipy.special import ndtr

from pydirect.decisions import surrogate as learned
from pydirect.decisions.box import (
    UNIT,
    Box,
    BoxSearch,
    Criterion,
    applicability,
    applied,
    feasibility,
    improvement,
    maximise,
    scalarised_improvement,
)
from pydirect.decisions.surrogate import LearnedFunction, Surrogate, signed, standardised
from pydirect.features.kernel import KernelHyperparameters

NONE = np.empty((0, 2))
SQUARE = Box([None, None], [False, False])
KINDS = (np.arange(3.0) + 0.5) / 3
MIXED = Box([None, np.linspace(0.1, 0.9, 5), KINDS], [False, False, True])


class Bump:
    """−|inputs − centre|², on inputs of a box."""

    def __init__(self, centre):
        self.centre = centre

    def value(self, inputs):
        return -np.square(inputs - self.centre).sum(axis=1)

    def gradient(self, inputs):
        return self.value(inputs), -2 * (inputs - self.centre)


def test_inputs_are_centred_and_categories_as_far_apart_as_ends():
    rows = np.array([[0.0, 0.1, KINDS[0]], [1.0, 0.1, KINDS[1]], [np.nan, np.nan, np.nan]])
    inputs = MIXED.inputs(rows)
    assert_allclose(inputs[0, :1] - inputs[1, :1], [-UNIT])
    assert_allclose(np.linalg.norm(inputs[0, 2:] - inputs[1, 2:]), UNIT)
    assert_array_equal(inputs[2], np.zeros(5))
    assert_array_equal(MIXED.tied, [0, 1, 2, 2, 2])


def test_rows_snap_to_levels():
    rows = np.array([[1.2, 0.35, 0.9], [0.5, -3.0, 0.2]])
    assert_allclose(MIXED.snapped(rows), [[1.0, 0.3, KINDS[2]], [0.5, 0.1, KINDS[0]]])
    assert_array_equal(MIXED.snapped(np.full((1, 3), np.nan)), np.full((1, 3), np.nan))
    rows = MIXED.snapped(np.random.default_rng(0).random((3000, 3)))
    assert_allclose(np.unique(rows[:, 1], return_counts=True)[1] / 3000, 0.2, atol=0.05)
    assert_allclose(np.unique(rows[:, 2], return_counts=True)[1] / 3000, 1 / 3, atol=0.05)


def test_the_largest_value_of_numbers_levels_and_categories_is_found():
    target = np.array([[0.737, 0.5, KINDS[1]]])
    found = maximise(Bump(MIXED.inputs(target)), MIXED, np.empty((0, 3)), np.random.default_rng(0), [])
    assert_allclose(found, target[0], atol=1e-5)


def test_what_applies_is_learned_from_other_columns():
    rng = np.random.default_rng(0)
    rows = MIXED.snapped(rng.random((60, 3)))
    complete = rows.copy()
    rows[rows[:, 2] != KINDS[1], 0] = np.nan
    assert_array_equal(np.isnan(applied(complete, applicability(rows))), np.isnan(rows))
    assert_array_equal(applied(complete, applicability(complete)), complete)


def test_units_keep_order_and_compress_what_is_bad():
    values = np.array([0.0, 0.1, 0.2, 0.3, 0.4, -1e6, -1e9, -np.inf])
    own = standardised(values, values)
    assert_array_equal(np.argsort(own[:7]), np.argsort(values[:7]))
    assert own[7] == own[6] > -4
    assert_allclose(np.diff(own[1:5]), np.diff(own[1:5])[0])  # better than the median: only scaled
    assert standardised(values, np.array([0.5]))[0] - own[4] == pytest.approx(own[4] - own[3])
    assert_allclose(own.mean(), 0, atol=1e-12)
    *own, zero = signed(np.array([-3.0, -1e-3, 0.0, 2e-3, 1e9]), np.array([-5.0, 0.0, 1e-9, 0.0]))
    assert_array_equal(own > zero, [False, False, True])


def test_cost_is_bounded_by_landmarks(monkeypatch):
    monkeypatch.setattr(learned, "MAX_LANDMARKS", 30)
    rng = np.random.default_rng(0)
    function = LearnedFunction(np.arange(2))
    sizes, built = [], 0
    x = rng.uniform(-1.7, 1.7, (120, 2))
    y = np.sin(x[:, 0]) - x[:, 1] ** 2
    for i in range(120):
        function.add(x[i : i + 1], y[i : i + 1])
        before = len(sizes) and sizes[-1]
        sizes.append(len(function.surrogate(rng).landmarks))
        built += sizes[-1] < before
    assert max(sizes) <= 40
    assert 2 < built < 50
    good = y > np.median(y)
    mean, std = function.surrogate(rng).moments(x[good])
    assert (np.abs(mean - function.units(y[good])) < 5 * std + 0.1).all()


def searched(values, n, seed=0, n_constraints=0):
    """Rows and outcomes of a search, with a random first row and none pending."""
    rng = np.random.default_rng(seed)
    search = BoxSearch(SQUARE, 1, n_constraints, rng)
    rows = []
    for _ in range(n):
        row = search.ask(NONE) if len(rows) > 4 else rng.random(2)
        outcome = np.array([values(row)])
        search.tell(row[None], outcome[:, :1], outcome[:, 1:], np.isnan(outcome[:, 0]))
        rows.append([*row, *outcome[0]])
    return np.array(rows)


def test_the_maximum_of_a_smooth_function_is_found():
    found = searched(lambda u: [-((u[0] - 0.3) ** 2) - 2 * (u[1] - 0.8) ** 2], 16)
    assert found[:, 2].max() > -1e-4


@pytest.mark.slow
def test_the_maximum_where_a_constraint_holds_is_found():
    found = searched(lambda u: [u.sum(), u[0] ** 2 + u[1] ** 2 - 1], 20, n_constraints=1)
    assert np.sqrt(2) - 0.01 < found[found[:, 3] <= 0, 2].max() <= np.sqrt(2)


def test_pending_rows_are_not_asked_for_again():
    rng = np.random.default_rng(0)
    search = BoxSearch(SQUARE, 1, 0, rng)
    rows = rng.random((12, 2))
    search.tell(rows, -np.square(rows - 0.5).sum(axis=1)[:, None], np.empty((12, 0)), np.zeros(12, bool))
    pending = NONE
    for _ in range(4):
        pending = np.vstack([pending, search.ask(pending)])
    distance = np.abs(pending[:, None] - pending).max(axis=2) + np.eye(4)
    assert distance.min() > 1e-3


RNG = np.random.default_rng(0)
X = RNG.uniform(-1.7, 1.7, (15, 2))
KERNEL = KernelHyperparameters(1e-3, 0.8, np.array([0.7, 1.5]), 0.0, 1.0, 0.0, 0, 2.5)
SURROGATES = [Surrogate.of(KERNEL, X, X, y) for y in (np.sin(2 * X[:, 0]), X[:, 1] - X[:, 0] ** 2)]
NEW = RNG.uniform(-1.7, 1.7, (6, 2))
SCALES = {"reference": np.array([-1.5, -2.0]), "direction": np.array([0.6, 0.8])}
TERMS = [
    (partial(improvement, best=0.5), SURROGATES[:1]),
    (partial(feasibility, threshold=-0.3), SURROGATES[1:]),
    (partial(scalarised_improvement, best=1.0, **SCALES), SURROGATES),
]


@pytest.mark.parametrize("best", [-1.0, 0.3, 2.0, 6.0])
def test_the_scalarised_improvement_is_the_integral_of_probabilities(best):
    mean, std = RNG.normal(size=(2, 4)), np.tile([0.01, 0.2, 0.7, 2.0], (2, 1))
    found = np.exp(scalarised_improvement(mean, std, best, **SCALES)[0])
    unit = SCALES["direction"][:, None]
    m, s = (mean - SCALES["reference"][:, None]) / unit, std / unit
    for i in range(4):
        expected = quad(
            lambda t, i=i: np.prod(ndtr((m[:, i] - t) / s[:, i])), best, best + 30, limit=200, points=[best + 1]
        )[0]
        assert_allclose(found[i], expected, rtol=2e-3, atol=1e-12)


def test_one_objective_is_expected_improvement():
    mean, std = RNG.normal(size=(1, 50)), RNG.uniform(0.1, 2.0, (1, 50))
    found = scalarised_improvement(mean, std, 0.7, np.zeros(1), np.ones(1))[0]
    assert_allclose(found, improvement(mean, std, 0.7)[0], atol=1e-4)


@pytest.mark.parametrize("terms", [[term] for term in TERMS] + [TERMS], ids=["ei", "feasible", "scalarised", "sum"])
def test_gradients_are_finite_differences(terms):
    criterion = Criterion(terms)
    value, gradient = criterion.gradient(NEW)
    assert_allclose(value, criterion.value(NEW))
    for j in range(2):
        step = 1e-5 * np.eye(2)[j]
        slope = (criterion.value(NEW + step) - criterion.value(NEW - step)) / 2e-5
        assert_allclose(gradient[:, j], slope, rtol=2e-3, atol=2e-3)
