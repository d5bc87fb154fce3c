"""Models within what a device has."""

from importlib import import_module

import numpy as np
import pytest

from pydirect import DirectClassifier, DirectRegressor, Nystroem, QuadraticBNNRegressor, Sequential, fit_quantized
from pydirect.quantized.codes import unit_levels
from pydirect.quantized.fit_quantized import _fits, _search
from pydirect.quantized.predictors import load_quantized
from pydirect.quantized.program import IntegerArithmeticError
from pydirect.quantized.proposals import Family
from pydirect.quantized.task import TargetTask, mapped_inputs

fit_quantized_module = import_module("pydirect.quantized.fit_quantized")  # the package has a function of this name


@pytest.mark.parametrize("target", ["linear", "constant"])
def test_budgets_for_targets_that_need_no_frequency(target):
    x = np.random.default_rng(0).standard_normal((60, 2))
    y = 2 * x[:, 0] - x[:, 1] + 0.01 * x[:, 0] ** 2 if target == "linear" else np.full(60, 3.0)
    model = fit_quantized(DirectRegressor(), x, y, max_flash=700, n_samples=2)
    assert np.isfinite(model.predict(x)).all() and np.isfinite(model.with_arithmetic("float").predict(x)).all()
    assert "\n" not in repr(model) and len(repr(model)) < 100
    if target == "constant":
        np.testing.assert_allclose(model.predict(x), 3.0)


def test_a_model_fits_into_its_flash(data):
    x, y = data(100)
    model = fit_quantized(DirectRegressor(), x, y, max_flash=800)
    assert model.report()["flash"] <= 800
    assert model.arithmetic == "integer"
    mean, std = model.predict(x, return_std=True)
    assert np.sqrt(np.mean((mean - y) ** 2)) < 0.5 * y.std()
    np.testing.assert_array_equal(model.totals(x), model.program.totals(x))
    assert 0.5 < np.mean(np.abs(mean - y) < 1.64 * std)


def test_a_model_says_which_scale_of_the_targets_it_is_of(data):
    x, y = data(60)
    for scale, modelled in (("auto", "y itself"), ("log", "log(")):
        model = fit_quantized(DirectRegressor(target_transform=scale), x, np.exp(y), max_flash=600, n_samples=1)
        assert model.report()["modelled"].startswith(modelled) and repr(model).endswith(f"{model.modelled}>")


def test_more_room_is_never_worse(data, monkeypatch):
    monkeypatch.setattr(fit_quantized_module, "families_of", lambda task: [Family("forest", (0, 4, 6), 0, 2)])
    x, y = data(80)
    task = TargetTask.begin(x, y, None, DirectRegressor().search_settings(), (), unit_levels(15))
    losses = []
    for limit in np.linspace(340, 480, 20).astype(int):
        model, score = _search(task, (1, 2), {"max_flash": limit})
        assert model.report()["flash"] <= limit
        losses.append(score.loss)
    assert (np.diff(losses) <= 0).all() and losses[-1] < losses[0] - 0.1


@pytest.mark.parametrize(("n_levels", "bits"), [(3, 2), (31, 8)])
def test_few_levels_take_few_bits(data, n_levels, bits):
    x, y = data(60)
    model = fit_quantized(DirectRegressor(), x, y, max_flash=1100, n_levels=n_levels)
    assert model.packed.bits == bits and len(model.levels) == n_levels
    assert model.packed.packed.nbytes == -(-model.codes.size * bits // 8)
    assert model.report()["flash"] <= 1100


def test_too_few_bytes_for_a_model_are_refused(data):
    x, y = data(60)
    with pytest.raises(ValueError, match=r"limits must hold a model, got .'max_flash': 40.: the smallest needs about"):
        fit_quantized(DirectRegressor(), x, y, max_flash=40)
    with pytest.raises(ValueError, match=r"limits must hold a model, got .'max_flash': 40.: the smallest needs about"):
        fit_quantized(DirectClassifier(), x, y > y.mean(), max_flash=40)
    with pytest.raises(TypeError, match="model must be a DirectRegressor or a DirectClassifier, got Quadratic"):
        fit_quantized(QuadraticBNNRegressor(), x, y)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_samples": 0}, "n_samples must be at least 1, got 0"),
        ({"n_samples": 17}, "n_samples must be at most 16, got 17"),
        ({"n_levels": 4}, "n_levels must be odd"),
        ({"max_flash": 0}, "max_flash must be at least 1, got 0"),
    ],
)
def test_budgets_name_the_invalid_argument(data, options, message):
    x, y = data(40)
    with pytest.raises((TypeError, ValueError), match=message):
        fit_quantized(DirectRegressor(), x, y, **options)


def test_several_outputs_share_the_basis_functions_of_a_budget(data):
    x, y = data(70)
    targets = np.c_[y, 50 + 1e3 * np.cos(x[:, 1] / 2)]
    model = fit_quantized(DirectRegressor(), x, targets, max_stack=190, n_samples=4)
    assert model.arithmetic == "integer" and model.n_outputs == 2 and _fits(model, {"max_stack": 190})
    mean, std = model.predict(x, return_std=True)
    assert (np.sqrt(np.mean((mean - targets) ** 2, axis=0)) < 0.5 * targets.std(axis=0)).all()
    assert (0.5 < np.mean(np.abs(mean - targets) < 1.64 * std, axis=0)).all()
    np.testing.assert_array_equal(model.totals(x), model.program.totals(x))


@pytest.mark.parametrize(
    ("n_classes", "limits"),
    [(2, {"max_flash": 1450}), (3, {"max_instructions": 4000, "n_samples": 4})],
    ids=["two", "three"],
)
def test_classes_share_the_basis_functions_of_a_budget(data, n_classes, limits, tmp_path):
    x, y = data(240)
    edges = np.quantile(y, [0.5] if n_classes == 2 else [0.3, 0.7])
    labels = np.array(["low", "middle", "high"])[np.digitize(y, edges)]
    model = fit_quantized(DirectClassifier(), x[:160], labels[:160], **limits)
    assert model.arithmetic == "integer" and model.n_outputs == (1 if n_classes == 2 else 3)
    assert _fits(model, {name: limit for name, limit in limits.items() if name != "n_samples"})
    np.testing.assert_array_equal(model.classes, np.unique(labels))
    p = model.predict_proba(x[160:])
    np.testing.assert_allclose(p.sum(axis=1), 1)
    right = p[np.arange(80), np.searchsorted(model.classes, labels[160:])]
    assert -np.log(right).mean() < 0.75 * np.log(n_classes)
    assert np.mean(model.predict(x[160:]) == labels[160:]) > 0.8
    np.testing.assert_array_equal(model.totals(x), model.program.totals(x))
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(load_quantized(tmp_path / "m").predict_proba(x), model.predict_proba(x))


def test_weights_of_classes_and_rows_count_in_a_budget(data):
    x, y = data(120)
    labels = (np.random.default_rng(0).permutation(y) > np.quantile(y, 0.85)).astype(int)  # X says nothing about them
    plain = fit_quantized(DirectClassifier(), x, labels, max_flash=1250)
    balanced = fit_quantized(DirectClassifier(class_weight="balanced"), x, labels, max_flash=1250)
    assert balanced.predict_proba(x)[:, 1].mean() > plain.predict_proba(x)[:, 1].mean() + 0.08
    with pytest.raises(ValueError, match="y must have 120 rows, got 119"):
        fit_quantized(DirectClassifier(), x, labels[1:])
    with pytest.raises(ValueError, match="at least two classes"):
        fit_quantized(DirectClassifier(), x, 0 * labels)


@pytest.mark.parametrize("seed", range(2))
def test_weights_that_cancel_are_kept_within_the_lattice(seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((150, 4))
    f = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2]  # smooth: the evidence asks for large weights
    model = fit_quantized(DirectRegressor(), x, f + 0.1 * rng.standard_normal(150), max_flash=1500, n_samples=4)
    assert np.sqrt(np.mean((model.predict(x) - f) ** 2)) < 0.6 * f.std()  # beyond it, errors are many times f


def test_budgets_do_not_depend_on_units(data):
    scale = 1e100
    x, y = data(60)
    plain = fit_quantized(DirectRegressor(), x, y, max_flash=800)
    scaled = fit_quantized(DirectRegressor(), x, scale * (y - y.mean()), max_flash=800)
    expected = (plain.predict(x) - y.mean()) * scale
    assert np.sqrt(np.mean((scaled.predict(x) / scale - expected / scale) ** 2)) < 0.5 * y.std()
    assert np.isfinite(scaled.predict(x, return_std=True)[1]).all()


def test_columns_of_extreme_scale_have_an_integer_form_or_a_message(data):
    x, y = data(60)
    for factor in (1e-40, 1e300):
        with pytest.raises(IntegerArithmeticError, match="single precision"):
            fit_quantized(DirectRegressor(), x * factor, y, max_flash=1200)


@pytest.mark.parametrize(
    ("model", "ignored"),
    [
        (
            DirectRegressor("linear", posterior=Sequential(n_levels=3, prior="spike_and_slab"), noise=0.1),
            "features, posterior, noise must be left",
        ),
        (DirectRegressor(Nystroem(rank_inputs=False)), "features must be left"),
        (DirectRegressor(noise=0.1), "noise must be left"),
        (DirectClassifier(bound="jaakkola"), "bound must be left"),
    ],
)
def test_parameters_that_would_be_ignored_are_refused(model, ignored):
    x = np.random.default_rng(0).standard_normal((60, 2))
    with pytest.raises(ValueError, match=ignored):
        fit_quantized(model, x, x[:, 0] > 0, max_flash=1200)


def test_what_is_missing_is_to_be_filled_in_first():
    x = np.random.default_rng(0).standard_normal((60, 2))
    x[3, 1] = np.nan
    with pytest.raises(ValueError, match=r"X must have no missing numbers: .* columns_\.encode"):
        fit_quantized(DirectRegressor(), x, np.arange(60.0), max_flash=1200)


@pytest.mark.parametrize("gross", [1e3, -1e9])
def test_a_gross_input_leaves_the_others_in_reach_of_integers(gross):
    x = np.random.default_rng(0).standard_normal((300, 2))
    expected, inputs = mapped_inputs(x, None)
    x[7, 0] = gross
    found, others = mapped_inputs(x, None)
    np.testing.assert_allclose(found.scale, expected.scale, rtol=0.02)
    np.testing.assert_allclose(np.delete(others, 7, axis=0), np.delete(inputs, 7, axis=0), atol=0.05)
