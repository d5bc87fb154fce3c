"""Censored targets, survival, ordinal classes and likelihoods of one's own: what is found, predicted and refused."""

import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import stats
from sklearn import clone, config_context
from sklearn.metrics import get_scorer
from sklearn.model_selection import KFold, cross_val_score

from pydirect import DirectCensoredRegressor, DirectOrdinalClassifier, DirectSurvivalRegressor, Nystroem
from pydirect.fitted.predictor import factor_of_few_rows
from pydirect.logistic import LatentLikelihood
from pydirect.testing import check_likelihood

INF = np.inf
SMALL = {"features": Nystroem(max_search_rows=150), "n_basis_functions": 60}
RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (300, 2))
F = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
Y = F + 0.4 * RNG.standard_normal(300)
NEW = RNG.uniform(-1.8, 1.8, (2000, 2))
F_NEW = np.sin(2 * NEW[:, 0]) + 0.5 * NEW[:, 1]
END = RNG.normal(0.3, 1.0, 300)
LIMITS = np.column_stack([np.minimum(Y, END), np.where(END >= Y, Y, INF)])


@pytest.fixture(scope="module")
def censored():
    return DirectCensoredRegressor(**SMALL).fit(X, LIMITS)


@pytest.fixture(scope="module", params=["normal", "extreme"])
def survival(request):
    noise = RNG.standard_normal(300) if request.param == "normal" else np.log(RNG.exponential(size=300))
    time, end = np.exp(F + 0.4 * noise), np.exp(END)
    model = DirectSurvivalRegressor(likelihood=request.param, **SMALL)
    return model.fit(X, np.minimum(time, end), event=time <= end), request.param


@pytest.fixture(scope="module")
def ordinal():
    return DirectOrdinalClassifier(order=["low", "mid", "high"], **SMALL).fit(X, labels(Y))


def labels(y):
    return np.array(["low", "mid", "high"])[np.digitize(y, [-0.7, 0.5])]


def test_censored_rows_tell_what_they_know(censored):
    assert censored.likelihood_.scale == pytest.approx(0.4, rel=0.2)
    mean, std = censored.predict_latent(NEW)
    assert np.sqrt(np.mean((mean - F_NEW) ** 2)) < 0.25
    assert 0.85 < np.mean(np.abs(mean - F_NEW) < 1.645 * std) < 0.99
    taken_for_exact = DirectCensoredRegressor(**SMALL).fit(X, np.minimum(Y, END))
    assert np.mean(taken_for_exact.predict(NEW) - F_NEW) < -0.15 < np.mean(mean - F_NEW)
    assert "IntervalLikelihood(scale=0." in censored.summary()


def test_predictions_of_censored_targets_agree_with_each_other(censored):
    mean, std = censored.predict_latent(NEW[:5])
    normal = stats.norm(mean, factor_of_few_rows(300) * np.hypot(std, censored.likelihood_.scale))
    np.testing.assert_allclose(censored.predict_quantiles(NEW[:5], [0.1, 0.9]).T, [normal.ppf(p) for p in (0.1, 0.9)])
    np.testing.assert_allclose(censored.log_predictive_density(NEW[:5], F_NEW[:5]), normal.logpdf(F_NEW[:5]))
    above = censored.log_predictive_density(NEW[:5], np.column_stack([F_NEW[:5], np.full(5, INF)]))
    np.testing.assert_allclose(np.exp(above), normal.sf(F_NEW[:5]))


def test_rounded_targets_are_intervals():
    coarse = np.floor(Y)
    model = DirectCensoredRegressor(**SMALL).fit(X, np.column_stack([coarse, coarse + 1]))
    assert model.likelihood_.scale == pytest.approx(0.4, rel=0.25)  # not √(0.4² + 1/12)


def test_noise_that_is_known_is_not_learned():
    known = np.where(RNG.random(300) < 0.5, 2.0, 0.0)
    noisy = Y + np.sqrt(known) * RNG.standard_normal(300)
    model = DirectCensoredRegressor(**SMALL).fit(X, noisy, noise_variance=known)
    without = DirectCensoredRegressor(**SMALL).fit(X, noisy)
    assert model.likelihood_.scale == pytest.approx(0.4, rel=0.25)
    errors = [np.sqrt(np.mean((m.predict(NEW) - F_NEW) ** 2)) for m in (model, without)]
    assert errors[0] < 0.8 * errors[1]


@pytest.mark.parametrize("likelihood", ["normal", "extreme"])
def test_rows_that_had_to_exceed_an_entry_bias_nothing_where_it_is_given(likelihood):
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, (4000, 2))
    noise = rng.standard_normal(4000) if likelihood == "normal" else np.log(rng.exponential(size=4000))
    time, entry = np.exp(x[:, 0] + 0.7 * noise), np.where(np.arange(4000) % 4, 0.8, 0.0)
    end = entry + rng.uniform(2, 8, 4000)
    seen = time > entry
    x, y, event, entry = x[seen], np.minimum(time, end)[seen], (time <= end)[seen], entry[seen]
    model = DirectSurvivalRegressor("linear", likelihood=likelihood)
    naive, fitted = clone(model).fit(x, y, event), model.fit(x, y, event, entry=entry)

    def gradient(own):
        return (own.predict_latent(np.eye(2))[0] - own.predict_latent(-np.eye(2))[0]) / 2

    np.testing.assert_allclose(gradient(fitted), [1, 0], atol=0.08)
    assert fitted.predict_latent(np.zeros((1, 2)))[0][0] == pytest.approx(0, abs=0.08)
    assert fitted.likelihood_.scale == pytest.approx(0.7, rel=0.06)
    assert gradient(naive)[0] < 0.86 and naive.predict_latent(np.zeros((1, 2)))[0][0] > 0.2
    late = clone(model).fit(x, y, event, entry=np.where(entry > 0, entry, np.nan))
    np.testing.assert_array_equal(late.predict(x[:5]), fitted.predict(x[:5]))
    none = clone(model).fit(x, y, event, entry=np.zeros(len(y)))
    np.testing.assert_allclose(none.predict(x[:5]), naive.predict(x[:5]), rtol=1e-6)


@pytest.mark.parametrize("likelihood", ["normal", "extreme"])
def test_densities_given_entries_are_those_above_them(likelihood):
    model = DirectSurvivalRegressor("linear", likelihood=likelihood).fit(X, np.exp(Y), entry=np.exp(Y - 1))
    row, times, entry = X[:1], np.linspace(0.5, 60, 4000), 0.5 - 1e-9
    rows, entries = np.repeat(row, len(times), axis=0), np.full(len(times), entry)
    log_density = model.log_predictive_density(rows, times, entry=entries)
    beyond = np.exp(model.log_predictive_density(row, [60.0], event=[False], entry=[entry]))
    assert np.trapezoid(np.exp(log_density), times) + beyond[0] == pytest.approx(1, abs=1e-3)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_rows_that_are_censored_at_zero_tell_nothing():
    time, event = np.append(np.exp(Y), 0.0), np.append(np.ones(300, bool), False)
    model = DirectSurvivalRegressor("linear").fit(np.append(X, X[:1], axis=0), time, event=event)
    without = DirectSurvivalRegressor("linear").fit(X, np.exp(Y))
    np.testing.assert_allclose(model.predict(X[:5]), without.predict(X[:5]), rtol=0.01)


def test_sizes_above_a_limit_alone_are_truncated():
    rng = np.random.default_rng(4)
    x = rng.uniform(-2, 2, (900, 1))
    y = np.sin(2 * x[:, 0]) + 0.5 * rng.standard_normal(900)
    x, y = x[y > -0.3], y[y > -0.3]
    new = np.linspace(-1.8, 1.8, 50)[:, None]
    error = [
        np.sqrt(
            np.mean((DirectCensoredRegressor(**SMALL).fit(x, y, entry=entry).predict(new) - np.sin(2 * new[:, 0])) ** 2)
        )
        for entry in (None, np.full(len(y), -0.3))
    ]
    assert error[1] < 0.25 < 0.3 < error[0]


def test_survival_times(survival):
    model, name = survival
    assert model.likelihood_.scale == pytest.approx(0.4, rel=0.2)
    noise = stats.norm if name == "normal" else stats.gumbel_l
    times = np.array([0.3, 1.0, 3.0])
    truth = noise.sf((np.log(times) - F_NEW[:, None]) / 0.4)
    curves = model.predict_survival(NEW, times)
    np.testing.assert_array_equal(model.predict_survival(NEW, [0.0, 1.0])[:, 0], 1.0)
    assert np.abs(curves - truth).mean() < 0.06
    assert (np.diff(curves, axis=1) < 0).all()
    median = model.predict(NEW[:4])
    np.testing.assert_allclose([model.predict_survival(NEW[k : k + 1], [median[k]])[0, 0] for k in range(4)], 0.5)
    fresh = np.exp(F_NEW + 0.4 * noise.rvs(size=2000, random_state=1))
    lower, upper = model.predict_interval(NEW)
    assert 0.85 < np.mean((lower < fresh) & (fresh < upper)) < 0.95
    assert model.score(NEW, fresh) > 0.8


def test_densities_of_times_are_per_unit_of_time():
    time = np.exp(Y)
    model, logs = DirectSurvivalRegressor("linear").fit(X, time), DirectCensoredRegressor("linear").fit(X, Y)
    assert model.elbo_ == pytest.approx(logs.elbo_ - Y.sum(), rel=1e-6)
    assert model.left_out_log_loss_ == pytest.approx(logs.left_out_log_loss_ + Y.mean(), rel=1e-6)
    at = np.linspace(1e-4, 60, 200_001)
    density = np.exp(model.log_predictive_density(np.repeat(X[:1], len(at), axis=0), at))
    assert np.trapezoid(density, at) == pytest.approx(1.0, abs=2e-3)


def test_times_in_structured_arrays_and_limits():
    time, seen = np.exp(np.minimum(Y, END)), Y <= END
    both = np.array(list(zip(seen, time, strict=True)), dtype=[("event", bool), ("time", float)])
    model = DirectSurvivalRegressor(features="linear")
    expected = model.fit(X, time, event=seen).predict(NEW[:3])
    np.testing.assert_array_equal(model.fit(X, both).predict(NEW[:3]), expected)
    np.testing.assert_array_equal(model.fit(X, time, seen).predict(NEW[:3]), expected)
    limits = np.column_stack([time, np.where(seen, time, np.nan)])
    np.testing.assert_array_equal(model.fit(X, limits).predict(NEW[:3]), expected)
    assert model.score(X, time, event=seen) == model.score(X, both) != model.score(X, time)
    density = model.log_predictive_density(X, both)
    np.testing.assert_array_equal(model.log_predictive_density(X, time, event=seen), density)


def test_missing_limits_of_nullable_columns_are_none():
    values = np.round(10 * LIMITS[:, 0])
    nullable = pd.DataFrame({"lower": values, "upper": np.where(Y > END, np.nan, values)}).convert_dtypes()
    assert nullable.dtypes.eq("Int64").all()
    model = DirectCensoredRegressor(features="linear").fit(X, nullable)
    expected = DirectCensoredRegressor(features="linear").fit(X, nullable.to_numpy(float, na_value=np.nan))
    np.testing.assert_array_equal(model.predict(NEW[:3]), expected.predict(NEW[:3]))


@pytest.mark.parametrize("likelihood", ["normal", "extreme"])
def test_intervals_of_few_rows_are_wider(likelihood):
    model = DirectCensoredRegressor(likelihood=likelihood).fit(X[:6], Y[:6])
    factor, (mean, std) = factor_of_few_rows(6), model.predict_latent(NEW[:5])
    wider = replace(model.likelihood_, scale=factor * model.likelihood_.scale)
    lower, upper = model.predict_interval(NEW[:5])
    expected = wider.quantiles(mean, (factor * std) ** 2, np.array([0.05, 0.95]))
    np.testing.assert_allclose(np.column_stack([lower, upper]), expected)
    assert factor > 1.2


def test_events_are_metadata_of_cross_validation():
    time, seen = np.exp(np.minimum(Y, END)), Y <= END
    both = np.array(list(zip(seen, time, strict=True)), dtype=[("event", bool), ("time", float)])
    model = DirectSurvivalRegressor(features="linear")
    expected = cross_val_score(model, X, both, cv=KFold(3))
    with config_context(enable_metadata_routing=True):
        asking = clone(model).set_fit_request(event=True).set_score_request(event=True)
        np.testing.assert_array_equal(cross_val_score(asking, X, time, cv=KFold(3), params={"event": seen}), expected)


def test_ordinal_classes(ordinal):
    assert ordinal.order_.tolist() == ["low", "mid", "high"]
    assert (np.diff(ordinal.thresholds_) > 0).all()
    ends = np.array([-INF, -0.7, 0.5, INF])
    truth = np.diff(stats.norm.cdf((ends - F_NEW[:, None]) / 0.4), axis=1)
    probability = ordinal.predict_proba(NEW)[:, np.searchsorted(ordinal.classes_, ordinal.order_)]
    np.testing.assert_allclose(probability.sum(axis=1), 1.0)
    assert np.abs(probability - truth).mean() < 0.06
    assert ordinal.score(NEW, labels(F_NEW)) > 0.85


@pytest.mark.parametrize("scorer", ["neg_log_loss", "roc_auc_ovr"])
def test_classes_are_sorted_for_scorers_whatever_their_order(ordinal, scorer):
    assert ordinal.classes_.tolist() == ["high", "low", "mid"]
    by_number = DirectOrdinalClassifier(**SMALL).fit(X, np.digitize(Y, [-0.7, 0.5]))
    expected = get_scorer(scorer)(by_number, NEW, np.digitize(F_NEW, [-0.7, 0.5]))
    assert get_scorer(scorer)(ordinal, NEW, labels(F_NEW)) == pytest.approx(expected, rel=1e-9)


def test_categories_have_their_own_order():
    order, y = ["low", "mid", "high"], labels(Y)
    expected = DirectOrdinalClassifier("linear", order=order).fit(X, y).predict_proba(NEW[:3])
    ordered = pd.Categorical(y, [*order[:2], "none", "high"], ordered=True)
    for given in (ordered, pd.Series(ordered), pl.Series(y, dtype=pl.Enum(order))):
        model = DirectOrdinalClassifier(features="linear").fit(X, given)
        assert model.order_.tolist() == order
        np.testing.assert_array_equal(model.predict_proba(NEW[:3]), expected)
    for given in (y, pd.Categorical(y)):
        with pytest.warns(UserWarning, match=r"alphabetical order, \['high', 'low', 'mid'\]: give order"):
            assert DirectOrdinalClassifier(features="linear").fit(X, given).order_.tolist() == sorted(order)


class StudentLike(LatentLikelihood):
    """Logistic noise, whose tails forgive outliers."""

    def __init__(self, scale=1.0):
        self.scale = scale

    def log_density(self, y, f):
        z = np.abs(y - f) / self.scale
        return -z - 2 * np.log1p(np.exp(-z)) - np.log(self.scale)

    def width(self, y):
        return np.full(len(y), self.scale)

    @property
    def parameters(self):
        return np.log([self.scale])

    def with_parameters(self, parameters):
        return StudentLike(float(np.exp(parameters[0])))


@pytest.mark.parametrize(
    ("density", "got"),
    [(lambda y, f: (y - f).sum(axis=1), r"shape \(300,\)"), (lambda y, f: np.sqrt(-1 - f * f), "NaN")],
)
def test_log_densities_that_are_none_are_refused(density, got):
    wrong = type("Wrong", (LatentLikelihood,), {"log_density": lambda self, y, f: density(y, f)})
    with np.errstate(invalid="ignore"), pytest.raises(ValueError, match=rf"Wrong\.log_density.* \(300, 3\), got {got}"):
        DirectCensoredRegressor("linear", likelihood=wrong()).fit(X, Y)
    with np.errstate(invalid="ignore"), pytest.raises(ValueError, match=r"numbers of the shape of f"):
        check_likelihood(wrong(), Y[:5, None])


def test_a_likelihood_of_ones_own(tmp_path):
    y = Y.copy()
    y[::15] += 8.0
    model = DirectCensoredRegressor(likelihood=StudentLike(), **SMALL).fit(X, y)
    plain = DirectCensoredRegressor(**SMALL).fit(X, y)
    errors = [np.sqrt(np.mean((m.predict(NEW) - F_NEW) ** 2)) for m in (model, plain)]
    assert errors[0] < 0.6 * errors[1]
    assert model.likelihood_.scale < 1.0, "learned"
    with pytest.raises(TypeError, match="must have the method cdf"):
        model.predict_interval(NEW)
    with pytest.raises(TypeError, match="without pickle, got StudentLike: pickle the whole model"):
        model.save(tmp_path / "model")
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(NEW[:3]), model.predict(NEW[:3]))
    with pytest.raises(TypeError, match="likelihood must be"):
        DirectCensoredRegressor(likelihood=3).fit(X, y)
    with pytest.raises(
        ValueError, match=r"likelihood, unless it is a pydirect\.logistic\.LatentLikelihood, must be one of"
    ):
        DirectCensoredRegressor(likelihood="cauchy").fit(X, y)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.column_stack([Y, Y - 1]), "lower limits up to the upper ones, got .* in row 0"),
        (np.column_stack([Y, np.full(300, INF)]), "all are censored on one side"),
        (np.column_stack([np.full(300, -INF), Y]), "all are censored on one side"),
        (np.column_stack([Y, Y, Y]), "must have one column, of values, or two, of limits, got 3"),
        (LIMITS[:-1], "inconsistent numbers of samples"),
    ],
)
def test_impossible_limits_are_refused(y, message):
    with pytest.raises(ValueError, match=message):
        DirectCensoredRegressor(features="linear").fit(X, y)


def test_impossible_entries_are_refused():
    time, early = np.exp(Y), np.where(np.arange(300) == 7, np.exp(Y) + 1, 0.0)
    model = DirectSurvivalRegressor("linear")
    with pytest.raises(ValueError, match=r"entry must be below y, got .* in row 7"):
        model.fit(X, time, entry=early)
    with pytest.raises(ValueError, match="entry must not be negative, got -1"):
        model.fit(X, time, entry=np.full(300, -1.0))
    with pytest.raises(ValueError, match=r"entry must have shape \(300,\)"):
        model.fit(X, time, entry=time[:7] / 2)
    with pytest.raises(ValueError, match=r"entry must be below y, got inf in row 7"):
        model.fit(X, time, entry=np.where(early > 0, np.inf, 0.0))
    with pytest.raises(ValueError, match=r"entry must hold numbers: could not convert string to float: .*late"):
        model.fit(X, time, entry=["late"] * 300)
    with pytest.raises(ValueError, match="entry must be None unless likelihood is one of 'normal', 'extreme'"):
        DirectCensoredRegressor("linear", likelihood=StudentLike()).fit(X, Y, entry=Y - 1)


def test_impossible_times_labels_and_noises_are_refused():
    model = DirectSurvivalRegressor(features="linear")
    with pytest.raises(ValueError, match="times must be positive, got -"):
        model.fit(X, Y)
    with pytest.raises(ValueError, match="event must be True in some rows, got none"):
        model.fit(X, np.exp(Y), event=np.zeros(300, bool))
    with pytest.raises(TypeError, match="sample_weight must hold numbers, got bool: give indicators"):
        model.fit(X, np.exp(Y), sample_weight=Y > 0)
    both = np.array([(True, 1.0)] * 300, dtype=[("event", bool), ("time", float)])
    with pytest.raises(ValueError, match="event must be None where y is structured"):
        model.fit(X, both, np.ones(300))
    with pytest.raises(ValueError, match=r"times must be finite, got nan at index \(2,\)"):
        model.fit(X, pd.array([1, 2, None] * 100, dtype="Int64"), Y > 0)
    durations = np.ones(300, "timedelta64[s]")
    for event in (None, Y > 0):
        with pytest.raises(TypeError, match=r"must hold numbers, got timedelta64\[s\]: divide durations by a unit"):
            model.fit(X, durations, event)
    for value in (2, np.nan, None, "yes"):
        with pytest.raises(ValueError, match=f"event must hold True or False, got '?{value}.* in row 1"):
            model.fit(X, np.exp(Y), event=[True, value] + 298 * [False])
    with pytest.raises(ValueError, match=r"event must have one value for each time, got shapes \(299,\) and \(300,\)"):
        model.fit(X, np.exp(Y), event=np.ones(299))
    for likelihood in ("weibull", StudentLike()):
        with pytest.raises(ValueError, match="likelihood must be one of 'normal', 'extreme', got "):
            DirectSurvivalRegressor(likelihood=likelihood).fit(X, np.exp(Y))
    for likelihood in ("extreme", StudentLike()):
        with pytest.raises(ValueError, match="noise_variance must be None unless likelihood is 'normal', got "):
            DirectCensoredRegressor("linear", likelihood=likelihood).fit(X, Y, noise_variance=np.ones(300))
    with pytest.raises(ValueError, match="times must not be negative, got -1"):
        model.fit(X, np.exp(Y)).predict_survival(X, [0.0, -1.0])
    with pytest.raises(ValueError, match="noise_variance must not be negative, got -1"):
        DirectCensoredRegressor(features="linear").fit(X, Y, noise_variance=np.full(300, -1.0))
    with pytest.raises(ValueError, match="order must hold the classes of y"):
        DirectOrdinalClassifier(order=["low", "high"]).fit(X, labels(Y))
    with pytest.raises(ValueError, match="at least two classes"):
        DirectOrdinalClassifier().fit(X, np.ones(300))
