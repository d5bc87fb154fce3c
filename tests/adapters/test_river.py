"""The adapter for river: its own checks, and what becomes of dictionaries."""

import math
import pickle
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest

from pydirect import DirectStreamRegressor, Fourier, load

pytest.importorskip("river", reason="river is not installed")
pd = pytest.importorskip("pandas", reason="pandas is not installed")

from river import checks, datasets, evaluate, metrics, preprocessing, proba  # noqa: E402

from pydirect.adapters import RiverRegressor  # noqa: E402

SMALL = {"n_basis_functions": 20, "n_first_rows": 32}


def small(length_scale=1.0, **options):
    """Return a model that is fast: no kernel is searched."""
    return RiverRegressor(DirectStreamRegressor(features=Fourier(length_scale=length_scale), **SMALL, **options))


def rows_of(n, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (n, 2))
    return x, np.sin(x[:, 0]) + 0.5 * x[:, 1] + 0.1 * rng.standard_normal(n)


def records(x, keys=("a", "b")):
    return [dict(zip(keys, row, strict=True)) for row in x.tolist()]


def learned(model, x, y):
    for row, target in zip(x, y.tolist(), strict=True):
        model.learn_one(row, target)
    return model


CHECKS = list(checks.yield_checks(small()))


@pytest.mark.parametrize("check", CHECKS, ids=[check.__name__ for check in CHECKS])
def test_rivers_own_check(check):
    check(small())


def test_predictions_are_those_of_the_stream():
    x, y = rows_of(150)
    model = learned(small(half_life=50), records(x), y)
    stream = DirectStreamRegressor(features=Fourier(length_scale=1.0), half_life=50, **SMALL)
    for i in range(len(x)):
        stream.partial_fit(x[i : i + 1], y[i : i + 1])
    mean, std = stream.predict(x[:20], return_std=True)
    for i, row in enumerate(records(x[:20])):
        assert model.predict_one(row) == pytest.approx(mean[i], rel=1e-9)
        found = model.predict_one(row, with_dist=True)
        assert isinstance(found, proba.Gaussian)
        assert (found.mu, found.sigma) == pytest.approx((mean[i], std[i]), rel=1e-9)


def test_the_first_predictions_are_standard_normal_and_then_the_first_target():
    model = small()
    found = model.predict_one({"a": 1.0}, with_dist=True)
    assert (model.predict_one({"a": 1.0}), found.mu, found.sigma) == pytest.approx((0.0, 0.0, 1.0))
    model.learn_one({"a": 1.0}, 3.0)
    found = model.predict_one({"a": 2.0}, with_dist=True)
    assert found.mu == pytest.approx(3.0)
    assert 0 < found.sigma < math.inf


def test_a_model_is_cloned_and_not_touched():
    template = DirectStreamRegressor(n_basis_functions=30)
    x, y = rows_of(20)
    model = learned(RiverRegressor(template), records(x), y)
    assert not hasattr(template, "n_seen_")
    assert model.clone().predict_one(records(x)[0]) == 0.0


def test_keys_that_lack_are_missing_values():
    x, y = rows_of(200)
    x[::3, 1] = np.nan
    ways = [
        [{k: v for k, v in row.items() if v == v} for row in records(x)],
        [{k: v if v == v else None for k, v in row.items()} for row in records(x)],
        records(x),
    ]
    models = [learned(small(), rows, y) for rows in ways]
    for row in [{"a": 1.0}, {"b": 1.0}, {"a": 0.5, "b": -1.0}, {}]:
        means = [model.predict_one(row) for model in models]
        assert means[1:] == pytest.approx(means[:1] * 2, rel=1e-12)


def test_unknown_keys_change_no_prediction():
    x, y = rows_of(100)
    model = learned(small(), records(x), y)
    assert model.predict_one({"a": 1.0, "b": 1.0, "c": 5.0}) == model.predict_one({"a": 1.0, "b": 1.0})
    assert model.columns == ["a", "b"]


@pytest.mark.parametrize("n_before", [20, 300])
def test_a_new_key_is_used_in_the_end(n_before):
    x, y = rows_of(700)
    model = small(half_life=100)
    learned(model, records(x[:n_before, :1], ("a",)), y[:n_before])
    learned(model, records(x[n_before:]), y[n_before:])
    assert model.columns == ["a", "b"]
    difference = model.predict_one({"a": 0.0, "b": 1.5}) - model.predict_one({"a": 0.0, "b": -1.5})
    assert difference == pytest.approx(1.5, abs=0.4)


def test_files_hold_columns_that_the_map_does_not_know_yet(tmp_path):
    x, y = rows_of(60)
    model = learned(small(), records(x[:50, :1], ("a",)), y[:50])
    learned(model, records(x[50:]), y[50:])
    model.stream.save(tmp_path / "stream.pydirect")
    again = load(tmp_path / "stream.pydirect")
    assert again.columns_.n_columns == 1
    assert again.predict(x).tolist() == model.stream.predict(x).tolist()


@pytest.mark.parametrize(("value", "kind"), [(datetime(2026, 1, 1), "datetime"), ([1.0], "list")])
def test_values_of_other_kinds_are_refused_by_their_key(value, kind):
    model = small()
    with pytest.raises(TypeError, match=f"^'a' must be a number, a boolean or text, got {kind}$"):
        model.learn_one({"a": value}, 1.0)
    model.learn_one({"a": 1.0, "b": 2.0}, 1.0)


def test_text_and_booleans_are_values():
    x, y = rows_of(200)
    y = y + 2 * (x[:, 1] > 0)
    rows = [{"a": a, "side": "right" if b > 0 else "left", "on": b > 1} for a, b in x.tolist()]
    model = learned(small(), rows, y)
    difference = model.predict_one({**rows[0], "side": "right"}) - model.predict_one({**rows[0], "side": "left"})
    assert difference > 1.0
    assert math.isfinite(model.predict_one({"a": 0.0, "side": "above"}))


def test_a_window_of_time_forgets():
    x, y = rows_of(240)
    y[120:] += 5.0
    model = small(window=timedelta(hours=1))
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    for i, row in enumerate(records(x)):
        zone = timezone(timedelta(hours=i % 3))
        model.learn_one(row, float(y[i]), t=(begin + timedelta(minutes=i)).astimezone(zone))
    assert model.stream.total_weight_ == pytest.approx(60, abs=1)
    assert model.predict_one({"a": 0.0, "b": 0.0}) == pytest.approx(5.0, abs=0.5)


def test_frames_are_learned_row_by_row_and_keep_their_index():
    x, y = rows_of(100)
    frame = pd.DataFrame(x, columns=["b", "a"], index=np.arange(100) + 7)
    model = small()
    model.learn_many(frame, pd.Series(y))
    one = learned(small(), records(x, ("b", "a")), y)
    predicted = model.predict_many(frame[:5])
    assert predicted.index.tolist() == [7, 8, 9, 10, 11]
    assert predicted.to_numpy() == pytest.approx([one.predict_one(row) for row in records(x[:5], ("b", "a"))], rel=1e-6)


@pytest.mark.slow
def test_it_works_in_pipelines_and_evaluations():
    model = preprocessing.StandardScaler() | small(length_scale=3.0, half_life=50)
    error = evaluate.progressive_val_score(datasets.TrumpApproval().take(500), model, metrics.MAE()).get()
    assert error < 1.0  # the standard deviation of the targets is 1.8
    again = pickle.loads(pickle.dumps(model))
    x, _ = next(iter(datasets.TrumpApproval()))
    assert again.predict_one(x) == model.predict_one(x)


def test_a_model_of_another_kind_is_refused():
    with pytest.raises(TypeError, match="model must be a DirectStreamRegressor or None, got str"):
        RiverRegressor("direct")


@pytest.mark.slow
def test_the_room_imports_no_river_until_it_is_used():
    code = "import sys; sys.modules['river'] = None; import pydirect.adapters; pydirect.adapters.RiverRegressor"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    expected = 'ImportError: RiverRegressor requires river. Install it with: pip install "pydirect[river]"'
    assert done.stderr.splitlines()[-1] == expected
