"""Streams that forget: every row predicted from those before it, and what is left equal to the rows that are left."""

import copy
import datetime
import pickle

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from pydirect import DirectStreamRegressor, load
from pydirect.linear.adaptive import with_constant

KINDS = {"all": {}, "half_life": {"half_life": 60.0}, "window": {"window": 70}}


def rows(n, seed=0, shift=0.0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2)) + shift
    return X, np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] ** 2 + 0.1 * rng.standard_normal(n)


def stream(**options):
    return DirectStreamRegressor(n_basis_functions=30, n_first_rows=64, **options)


def weights_that_count(n, kind):
    age = np.arange(n)[::-1]
    return {"all": np.ones(n), "half_life": 0.5 ** (age / 60), "window": (age < 70).astype(float)}[kind]


def assert_sums_of(model, X, y, weight, rtol=1e-10):
    """Compare the model's sums with those of rows under its feature map."""
    phi = with_constant(model.features_.transform(model.columns_.encode(_table(X))))
    target = (y - model.y_mean_) / model.y_scale_
    found = model.statistics_
    A, c = (phi.T * weight) @ phi, (phi.T * weight) @ target
    np.testing.assert_allclose(found.A, A, atol=rtol * np.abs(A).max())
    np.testing.assert_allclose(found.c[:, 0], c, atol=rtol * np.abs(A).max())
    np.testing.assert_allclose(found.yty[0], weight @ target**2, rtol=10 * rtol)
    assert found.n_samples == pytest.approx(weight.sum(), rel=rtol)


def _table(X):
    from pydirect.tables.table import Table

    return Table.of_numbers(X)


@pytest.mark.parametrize("kind", KINDS)
def test_sums_are_those_of_the_rows_that_count(kind):
    X, y = rows(400)
    model = stream(follow_inputs=False, **KINDS[kind])
    model.partial_fit(X[:100], y[:100]).predict_then_learn(X[100:250], y[100:250])
    for i in range(250, 270):
        model.partial_fit(X[i : i + 1], y[i : i + 1])
    model.partial_fit(X[270:], y[270:])
    assert_sums_of(model, X, y, weights_that_count(400, kind))
    assert model.n_seen_ == 400


@pytest.mark.parametrize("kind", KINDS)
def test_rows_one_by_one_are_predicted_as_in_one_call(kind):
    X, y = rows(200)
    together, alone = (stream(**KINDS[kind]) for _ in range(2))
    found = np.stack(together.predict_then_learn(X, y))
    singly = np.concatenate([np.stack(alone.predict_then_learn(X[i : i + 1], y[i : i + 1])) for i in range(200)], 1)
    np.testing.assert_allclose(found, singly, rtol=1e-6, atol=1e-8)
    assert np.isnan(found[:, :2]).all()
    assert np.isfinite(found[:, 2:]).all()
    assert together.log_score_ == pytest.approx(alone.log_score_)


@pytest.mark.parametrize("kind", ["all", "half_life"])
def test_rows_in_compiled_code_change_the_posterior_as_their_sums_do(kind):
    X, y = rows(260)
    model = stream(follow_inputs=False, **KINDS[kind]).partial_fit(X[:230], y[:230])
    for i in range(230, 260):
        mean, std = model.predict_one(X[i])
        assert model._open is not None
        found = model.predict_then_learn(X[i : i + 1], y[i : i + 1])
        np.testing.assert_allclose((mean, std), np.ravel(found[:2]), rtol=1e-9)
    np.testing.assert_allclose(model.predict_one(X[0]), np.ravel(model.predict(X[:1], return_std=True)), rtol=1e-9)
    posterior, sums = model.posterior_, model.statistics_
    precision = sums.A / posterior.noise_variance + np.eye(len(sums.A)) / posterior.prior_variance
    np.testing.assert_allclose(posterior.covariance @ precision, np.eye(len(precision)), atol=1e-7)
    np.testing.assert_allclose(precision @ posterior.mean, sums.c[:, 0] / posterior.noise_variance, rtol=1e-6)
    assert_sums_of(model, X, y, weights_that_count(260, kind))
    other = pickle.loads(pickle.dumps(model))
    for i in range(5):
        for each in (model, other):
            each.partial_fit(X[i : i + 1], y[i : i + 1])
    np.testing.assert_array_equal(model.predict(X), other.predict(X))


def test_rows_one_by_one_have_the_same_bits_for_any_number_of_threads():
    X, y = rows(300)
    found = []
    for n_threads in (1, 2, 3):
        model = stream(half_life=100, n_threads=n_threads).partial_fit(X[:200], y[:200])
        found.append([model.predict_then_learn(X[i : i + 1], y[i : i + 1]) for i in range(200, 300)])
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_first_rows_are_predicted_with_due_doubt():
    X, y = np.zeros((8, 2)), np.random.default_rng(0).standard_normal((200, 8))
    found = np.array([stream().predict_then_learn(X, own)[2] for own in y])
    assert found[:, 2:4].min() > -12
    assert found[:, 2:].mean() > -2.4  # -1.42 if mean and deviation were known


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("gross", "size"), [([305], 10), ([300, 301], 2), ([303, 320, 350, 380], 100), ([305], 200)])
def test_gross_targets_in_blocks_of_any_size_ruin_nothing(kind, gross, size):
    X, y = rows(500)
    f = np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] ** 2
    y[gross] = 1e6
    model = stream(follow_inputs=False, **KINDS[kind]).partial_fit(X[:300], y[:300])
    with pytest.warns(UserWarning, match="targets miss what was predicted"):
        for begin in range(300, 500, size):
            model.partial_fit(X[begin : begin + size], y[begin : begin + size])
    mean, std = model.predict(X, return_std=True)
    assert np.sqrt(np.mean((mean - f) ** 2)) < 0.4
    assert std.max() < 5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 120])
def test_three_gross_targets_in_succession_are_not_believed(kind, size):
    X, y = rows(600)
    y[400:403] = [1e6, -1e5, 3e5]
    model = stream(follow_inputs=False, **KINDS[kind]).partial_fit(X[:400], y[:400])
    with pytest.warns(UserWarning, match="targets miss"):
        found = [model.predict_then_learn(X[k : k + size], y[k : k + size]) for k in range(400, 520, size)]
    _, std, log_density = np.hstack(found)
    assert std[3:].max() < 3.0
    assert log_density[3:].mean() > -2.5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("amount", [30.0, -1000.0])
def test_a_level_that_moves_is_followed_by_mean_and_deviations(kind, amount):
    """By what is known of the function: all earlier rows move along."""
    X, y = rows(600)
    y[400:] += amount
    model = stream(follow_inputs=False, **KINDS[kind]).partial_fit(X[:400], y[:400])
    with pytest.warns(UserWarning, match="targets miss"), pytest.warns(UserWarning, match="the level of y has moved"):
        mean, std, log_density = model.predict_then_learn(X[400:], y[400:])
    assert "The level of y last moved after 4" in str(model.summary())
    assert np.sqrt(np.mean((mean[3:] - y[403:]) ** 2)) < 1.0
    assert std[3:].max() < 3.0
    assert log_density[3:].mean() > -2.5
    left = model.predict(X[400:], return_std=True)
    assert np.sqrt(np.mean((left[0] - y[400:]) ** 2)) < 0.7


@pytest.mark.filterwarnings("ignore:the level of y")
@pytest.mark.parametrize("grown", [lambda rng: rng.choice([-300, 300], 200), lambda rng: rng.normal(0, 300, 200)])
def test_noise_that_grows_is_believed(grown):
    """A level that moves to and fro is noise, and so are gross targets from the sixth in succession on."""
    X, y = rows(600)
    y[400:] += grown(np.random.default_rng(1))
    with pytest.warns(UserWarning, match="targets miss"):
        _, std, log_density = stream(follow_inputs=False).predict_then_learn(X, y)
    assert std[500:].min() > 100
    assert log_density[500:].min() > -15


def test_one_row_is_predicted_for_all_outputs_or_refused():
    X, y = rows(100)
    model = stream().partial_fit(X, np.stack([y, -y], axis=1))
    found, expected = model.predict_one(X[0]), model.predict(X[:1], return_std=True)
    for own, of_rows in zip(found, expected, strict=True):
        np.testing.assert_array_equal(own, of_rows[0])
    with pytest.raises(ValueError, match=r"x must have shape .* got dict"):
        model.predict_one({"a": 1.0, "b": 2.0})


@pytest.mark.parametrize("kind", KINDS)
def test_each_prediction_is_that_of_the_model_of_the_rows_before(kind):
    X, y = rows(150)
    model = stream(**KINDS[kind]).partial_fit(X[:100], y[:100])
    model.model_.regression.refresh()  # or else only the next row that is learned finds it due
    before = copy.deepcopy(model)
    mean, std, log_density = model.predict_then_learn(X[100:140], y[100:140])
    for i in (100, 101, 117, 139):
        m, s = before.predict(X[i : i + 1], return_std=True)
        assert mean[i - 100] == pytest.approx(m[0], abs=1e-8)
        assert std[i - 100] == pytest.approx(s[0], rel=1e-6)
        density = before.log_predictive_density(X[i : i + 1], y[i : i + 1])
        assert log_density[i - 100] == pytest.approx(density[0], rel=1e-6)
        if i + 1 < 140:
            steps = {100: 1, 101: 16, 117: 22}[i]
            before.predict_then_learn(X[i : i + steps], y[i : i + steps])


def test_a_refused_fit_leaves_the_stream_as_it_is():
    X, y = rows(100)
    model = stream(window=70).partial_fit(X, y)
    before = model.predict(X)
    with pytest.raises(ValueError, match="got nan in row 0"):
        model.fit(X[:, :1], np.full(100, np.nan))
    np.testing.assert_array_equal(model.predict(X), before)
    assert model.total_weight_ == 70


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 5, 30, 150])
def test_files_and_pickles_go_on_bit_for_bit(tmp_path, kind, n):
    X, y = rows(250)
    model = stream(**KINDS[kind])
    model.predict_then_learn(X[:n], y[:n])
    model.save(tmp_path / "model")
    found = model.predict_then_learn(X[n:], y[n:])
    for other in (load(tmp_path / "model"), pickle.loads(pickle.dumps(load(tmp_path / "model")))):
        for own, expected in zip(other.predict_then_learn(X[n:], y[n:]), found, strict=True):
            np.testing.assert_array_equal(own, expected)
        assert other.log_score_ == model.log_score_


def test_rows_fade_and_leave_with_time():
    X, y = rows(300)
    times = np.datetime64("2026-01-01", "ms") + np.cumsum(np.random.default_rng(2).integers(0, 2000, 300))
    age = (times[-1] - times) / np.timedelta64(1, "s")
    minute = datetime.timedelta(minutes=1)
    for options, weight in (({"half_life": minute}, 0.5 ** (age / 60)), ({"window": minute}, (age < 60).astype(float))):
        model = stream(follow_inputs=False, **options).partial_fit(X[:100], y[:100], times=times[:100])
        model.predict_then_learn(X[100:], y[100:], times=times[100:].tolist())  # the standard library's datetimes
        assert_sums_of(model, X, y, weight, rtol=1e-7)  # seconds since 1970 have seven digits behind the point
        with pytest.raises(ValueError, match="times must not decrease"):
            model.partial_fit(X[:1], y[:1], times=times[:1])
        with pytest.raises(ValueError, match="times must be given"):
            model.partial_fit(X[:1], y[:1])


def test_a_long_gap_in_time_leaves_only_the_rows_after_it():
    X, y = rows(130)
    times = np.r_[np.arange(100.0), 1e6 + np.arange(30.0)]
    model = stream(half_life=datetime.timedelta(seconds=50))
    *_, log_density = model.predict_then_learn(X, y, times=times)
    assert np.isfinite(log_density[2:]).all()
    assert model.total_weight_ == pytest.approx((0.5 ** (np.arange(30) / 50)).sum())


@pytest.mark.slow
def test_the_map_follows_inputs_that_move_and_keeps_what_was_learned():
    first, then, old = rows(2000), rows(2000, 1, shift=6.0), rows(500, 2)
    scores = {}
    for follow in (True, False):
        model = DirectStreamRegressor(n_basis_functions=80, n_first_rows=200, follow_inputs=follow)
        model.predict_then_learn(*first)
        *_, log_density = model.predict_then_learn(*then)
        scores[follow] = log_density[-500:].mean(), model.log_predictive_density(*old).mean()
    assert scores[True][0] > scores[False][0] + 1
    assert scores[True][1] > 0


def test_a_window_follows_a_function_that_changes():
    X, y = rows(1200)
    y[600:] = -y[600:]
    model = stream(window=150)
    *_, log_density = model.predict_then_learn(X, y)
    assert log_density[610:640].mean() < log_density[500:600].mean() - 1
    assert log_density[-300:].mean() > log_density[500:600].mean() - 0.3


def test_deviations_follow_errors_long_before_the_noise_does():
    X, y = rows(300)
    y[200:] += np.random.default_rng(1).normal(0, 2, 100)
    model = stream(follow_inputs=False)
    _, std, log_density = model.predict_then_learn(X, y)
    assert std[230:].mean() > 5 * std[150:200].mean()
    assert log_density[230:].mean() > -3
    assert model.predict(X, return_std=True)[1].mean() == pytest.approx(std[-20:].mean(), rel=0.5)


def test_the_unit_of_targets_changes_nothing():
    X, y = rows(150)
    in_units, scaled = (stream().predict_then_learn(X, own) for own in (y, 1e4 * y + 1e5))
    np.testing.assert_allclose(in_units[2][2:60], scaled[2][2:60] + np.log(1e4), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_a_scale_of_targets_is_that_of_a_stream_of_transformed_targets(tmp_path, kind):
    X, z = rows(300)
    y = np.exp(1 + z)
    model, plain = stream(target_transform="log", **KINDS[kind]), stream(**KINDS[kind])
    (mean, std, density), (_, _, of_logs) = (
        own.predict_then_learn(X[:250], t[:250]) for own, t in ((model, y), (plain, np.log(y)))
    )
    np.testing.assert_allclose(density[2:], of_logs[2:] - np.log(y[2:250]), rtol=1e-9, atol=1e-9)
    expected = np.exp(plain.predict_interval(X[250:], 0.9))
    np.testing.assert_allclose(model.predict_interval(X[250:], 0.9), expected, rtol=1e-6)
    found = model.predict(X[250:], return_std=True)
    distribution = model.predict_distribution(X[250:])
    np.testing.assert_allclose(found, (distribution.mean, distribution.std), rtol=1e-12)
    assert mean.shape == std.shape == (250,) and "log(y)" in model.summary()
    model.save(tmp_path / "m.pydirect")
    again = load(tmp_path / "m.pydirect")
    for own in (model, again):
        own.partial_fit(X[250:], y[250:])
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_scales_that_a_stream_cannot_have_are_refused():
    X, z = rows(50)
    with pytest.raises(ValueError, match="must be None or a scale for streams, got 'auto'"):
        stream(target_transform="auto").fit(X, z)
    model = stream(target_transform="log").fit(X, np.exp(z))
    with pytest.raises(ValueError, match=r"y must be greater than 0 for log\(y\)"):
        model.partial_fit(X, z)


def test_several_outputs_text_and_gaps():
    pandas = pytest.importorskip("pandas")
    X, y = rows(200)
    X[5, 0] = np.nan
    frame = pandas.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": np.where(X[:, 1] > 0, "up", "down")})
    targets = np.stack([y, X[:, 1]], axis=1)
    model = stream().partial_fit(frame[:90], targets[:90])
    mean, _, log_density = model.predict_then_learn(frame[90:], targets[90:])
    assert mean.shape == (110, 2)
    assert log_density.mean() > -0.5
    assert model.predict(frame).shape == (200, 2)


def test_rows_of_no_weight_are_rows_that_are_not_there():
    X, y = rows(100)
    weight = (np.arange(100) % 3 > 0).astype(float)
    with_weights, without = stream().partial_fit(X, y, weight), stream().partial_fit(X[weight > 0], y[weight > 0])
    np.testing.assert_allclose(with_weights.predict(X), without.predict(X))


def test_bad_rows_are_refused():
    X, y = rows(20)
    with pytest.raises(NotFittedError):
        stream().predict(X)
    model = stream().partial_fit(X, y)
    with pytest.raises(ValueError, match="times must be None"):
        model.partial_fit(X, y, times=np.arange(20.0))
    with pytest.raises(ValueError, match="outputs"):
        model.partial_fit(X, np.stack([y, y], axis=1))
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(X[:, :1], y)
    with pytest.raises(ValueError, match="window must be given from the first row on"):
        model.set_params(window=30).partial_fit(X, y)
