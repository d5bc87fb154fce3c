"""`DirectSearchCV`: scores are those of scikit-learn's grid search."""

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.kernel_approximation import RBFSampler
from sklearn.metrics import get_scorer, log_loss
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, LeaveOneOut, ParameterGrid, ShuffleSplit

from pydirect import DirectClassifier, DirectRegressor, DirectSearchCV, Gaussian, Sequential
from pydirect.explain import LeftOutRows
from pydirect.fitted.classification import quantiles_of
from pydirect.metrics import crps_scorer, nlpd_scorer

pytestmark = pytest.mark.filterwarnings("ignore::pydirect.NoiseGridWarning")

FIXED_FEATURES = RBFSampler(gamma=0.3, n_components=40, random_state=0)


def same_as_grid_search(ours, theirs):
    """Compare everything that scikit-learn documents, but seconds."""
    assert list(ours.cv_results_) == list(theirs.cv_results_)
    for name, values in theirs.cv_results_.items():
        if name.endswith("_score"):
            np.testing.assert_allclose(ours.cv_results_[name], values, atol=1e-9)
        elif name.endswith("_time"):
            assert (ours.cv_results_[name] >= 0).all() and ours.cv_results_[name].shape == values.shape
        else:
            assert list(ours.cv_results_[name]) == list(values)
            assert name == "params" or ours.cv_results_[name].dtype == values.dtype
    for name in ("best_index_", "best_params_", "n_splits_", "multimetric_", "n_features_in_"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert ours.best_score_ == pytest.approx(theirs.best_score_, abs=1e-9)
    if not is_classifier(ours):
        assert ours.best_estimator_.repetitions_ == pytest.approx(theirs.best_estimator_.repetitions_)


@pytest.mark.parametrize(
    "scoring", ["r2", "neg_mean_squared_error", "neg_root_mean_squared_error", crps_scorer, nlpd_scorer]
)
def test_search_equals_grid_search_where_features_do_not_depend_on_rows(data, scoring):
    x, y = data
    grid = {"noise": ["auto", 0.5, 0.1], "max_iter": [500]}
    cv = KFold(3, shuffle=True, random_state=1)
    model = DirectRegressor(FIXED_FEATURES)
    ours = DirectSearchCV(model, grid, scoring, cv).fit(x, y)
    theirs = GridSearchCV(model, grid, scoring=scoring, cv=cv).fit(x, y)
    same_as_grid_search(ours, theirs)
    assert ours.score(x[::2], y[::2]) == pytest.approx(theirs.score(x[::2], y[::2]), abs=1e-9)
    np.testing.assert_allclose(ours.predict(x), theirs.predict(x), atol=1e-8)


@pytest.mark.parametrize("scoring", ["r2", "neg_root_mean_squared_error", crps_scorer, "neg_max_error"])
def test_search_counts_rows_by_their_weights_and_keeps_groups_together(data, scoring):
    x, y = data
    several = np.c_[y, 100 + 50 * x[:, 2] + y] if scoring != "neg_max_error" else y
    weight, groups = np.arange(240) % 4 + 0.5 * (np.arange(240) % 3), np.arange(240) // 7 % 9
    model = DirectRegressor(FIXED_FEATURES)
    search = DirectSearchCV(model, {"noise": ["auto", 0.5]}, scoring, GroupKFold(3))
    search.fit(x, several, weight, groups)
    score, takes = get_scorer(scoring), scoring != "neg_max_error"

    def scored(fitted, rows):
        weights = {"sample_weight": weight[rows]} if takes else {}
        return pytest.approx(score(fitted, x[rows], several[rows], **weights), rel=1e-6)

    for f, (train, test) in enumerate(GroupKFold(3).split(x, groups=groups)):
        fitted = clone(model).set_params(noise=0.5).fit(x[train], several[train], weight[train])
        assert search.cv_results_[f"split{f}_test_score"][1] == scored(fitted, test)
    best, rows = clone(search.best_estimator_).fit(x, several, weight), np.arange(100)
    assert search.score(x[rows], several[rows], weight[rows] if takes else None) == scored(best, rows)
    assert search.best_estimator_.total_weight_ == weight.sum()


def test_search_tells_of_scores_that_are_no_numbers(data):
    search = DirectSearchCV(DirectRegressor("linear"), {"max_iter": [500, 600]}, lambda *_: np.array(np.nan), cv=2)
    with pytest.warns(UserWarning, match="One or more of the test scores are non-finite"):
        search.fit(*data)


def test_search_scores_without_weights_where_the_scorer_takes_none(data):
    x, y = data
    search = DirectSearchCV(
        DirectRegressor("linear"), {"max_iter": [500]}, lambda m, x, y: np.array(m.score(x, y)), cv=2
    )
    weight = np.arange(240.0)
    search.fit(x, y, weight)
    assert search.score(x, y, weight) == search.score(x, y)


@pytest.mark.filterwarnings("ignore::pydirect.direct.CoarseLevelsWarning")  # targets are nearly free of noise
def test_search_over_features_and_several_outputs(data):
    x, y = data
    several = np.c_[y, 100 + 50 * x[:, 2] + y]
    grid = [{"features": ["linear", "polynomial"]}, {"features": ["precomputed"], "posterior": ["sequential"]}]
    ours = DirectSearchCV(DirectRegressor(), grid, cv=4).fit(x, several)
    theirs = GridSearchCV(DirectRegressor(), grid, cv=4).fit(x, several)
    np.testing.assert_allclose(ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"], atol=5e-3)
    assert ours.best_params_ == theirs.best_params_
    assert ours.predict(x).shape == (240, 2)


def agree(model, x, y, cv=3, scoring="r2", **tolerance):
    grid = {"noise": ["auto", 0.5]}
    ours, theirs = (search(model, grid, scoring=scoring, cv=cv).fit(x, y) for search in (DirectSearchCV, GridSearchCV))
    for name in ("mean_test_score", "std_test_score", "rank_test_score"):
        np.testing.assert_allclose(ours.cv_results_[name], theirs.cv_results_[name], **tolerance)
    assert ours.best_estimator_.repetitions_ == theirs.best_estimator_.repetitions_
    np.testing.assert_allclose(ours.predict(x), theirs.predict(x), atol=1e-6)
    return ours


def test_search_scores_a_constant_fold_as_grid_search_does(data):
    x, y = data
    y = np.r_[np.zeros(80), y[80:]]
    assert (
        agree(DirectRegressor("linear", target_transform=None), x, y, atol=1e-3).cv_results_["split0_test_score"] == 0
    ).all()


@pytest.mark.parametrize("scoring", ["r2", "neg_mean_squared_error"])
def test_search_scores_a_constant_target_as_grid_search_does(data, scoring):
    ours, theirs = (
        search(DirectRegressor("linear"), {"max_iter": [500]}, scoring=scoring).fit(data[0], np.full(240, 0.1))
        for search in (DirectSearchCV, GridSearchCV)
    )
    assert ours.best_score_ == theirs.best_score_ == (scoring == "r2")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning", "ignore:One or more of the test")
def test_search_of_one_row_folds_has_no_r2_and_ranks_the_same(data):
    x, y = data[0][:9], data[1][:9]
    assert np.isnan(agree(DirectRegressor("linear"), x, y, cv=LeaveOneOut()).best_score_)


def test_search_loses_no_digits_to_a_far_row_of_the_fold_held_out(data):
    x, y = data[0].copy(), data[1]
    x[3, 1] = 1e8
    agree(DirectRegressor("precomputed"), x, y, cv=5, scoring="neg_root_mean_squared_error", rtol=1e-6)


REFUSED = [
    (ValueError, "at most once", {"cv": ShuffleSplit(5, test_size=0.5, random_state=0)}, None),
    (ValueError, "train on all rows", {"cv": ShuffleSplit(1, test_size=0.2, train_size=0.2)}, None),
    (TypeError, "scoring must be the name of one scorer", {"scoring": ["r2"]}, None),
    (ValueError, "scoring", {"scoring": "accurate"}, None),
    (TypeError, "scoring must return one number, got dict", {"scoring": lambda *_: {"r2": 1.0}}, None),
    (ValueError, "Invalid parameter 'levles'", {"param_grid": {"levles": [7]}}, None),
    (ValueError, "param_grid must have at least one candidate", {"param_grid": []}, None),
    (ValueError, "cv must have at least one split", {"cv": []}, None),
    (ValueError, "cv must hold out rows of positive weight, split 0 has none", {"cv": 4}, np.arange(240) >= 60),
    (TypeError, "estimator", {"estimator": "linear"}, None),
]


@pytest.mark.filterwarnings("ignore::pydirect.direct.CoarseLevelsWarning")
def test_search_refuses_what_sums_cannot_do(data):
    x, y = data
    model = DirectRegressor("linear", posterior=Sequential())
    given = {"estimator": model, "param_grid": {"posterior__n_levels": [7]}}
    for error, message, own, weight in REFUSED:
        with pytest.raises(error, match=message):
            DirectSearchCV(**given | own).fit(x, y, weight)
    half = np.arange(len(x)) % 2 == 0
    masks = DirectSearchCV(model, {"posterior__n_levels": [7]}, cv=[(half, ~half), (~half, half)]).fit(x, y)
    assert masks.n_splits_ == 2
    only_scores = masks.set_params(refit=False).fit(x, y)
    assert not any(hasattr(only_scores, name) for name in ("best_estimator_", "refit_time_", "predict", "score"))
    assert only_scores.best_params_ == {"posterior__n_levels": 7}


@pytest.mark.parametrize("weighted", [False, True])
def test_search_of_classifiers_equals_grid_search(data, weighted):
    x, y, weight = data[0], np.where(data[1] > 0, "up", "down"), 1.0 + np.arange(240) % 2 if weighted else None
    model, grid = DirectClassifier(n_basis_functions=30), {"posterior": ["gaussian", "sequential"]}
    ours = DirectSearchCV(model, grid, cv=3).fit(x, y, weight)
    theirs = GridSearchCV(model, grid, scoring="neg_log_loss", cv=3).fit(x, y, sample_weight=weight)
    if not weighted:  # GridSearchCV scores without weights
        same_as_grid_search(ours, theirs)
    np.testing.assert_array_equal(ours.best_estimator_.classes_, ours.classes_)
    np.testing.assert_array_equal(
        ours.predict_proba(x), clone(model).set_params(**ours.best_params_).fit(x, y, weight).predict_proba(x)
    )
    assert is_classifier(ours) and ours.score(x, y) == pytest.approx(-log_loss(y, ours.predict_proba(x)))


def test_leave_one_out_takes_the_labels_that_classifiers_left_out(data):
    x, y = data[0], data[1] > 0
    model, grid = DirectClassifier(), {"n_basis_functions": [3, 40]}
    search = DirectSearchCV(model, grid, cv="loo").fit(x, y)
    left = [
        np.log(clone(model).set_params(**own).fit(x, y).left_out_probability_).mean() for own in ParameterGrid(grid)
    ]
    np.testing.assert_allclose(search.cv_results_["split0_test_score"], left)
    assert search.best_params_ == {"n_basis_functions": 40}
    with pytest.raises(ValueError, match="cv must not be 'loo' for candidates with a class_weight"):
        DirectSearchCV(model, {"class_weight": ["balanced"]}, cv="loo").fit(x, y)
    with pytest.raises(ValueError, match="scoring must be one of 'neg_log_loss'"):
        DirectSearchCV(model, {}, "accuracy", cv="loo").fit(x, y)


@pytest.mark.parametrize(("n_rows", "kept"), [(300, 300), (6000, 1000)])
def test_kept_probabilities_have_the_mean_logarithm_of_all(n_rows, kept):
    rng = np.random.default_rng(0)
    log_probability, ones = -(rng.exponential(size=n_rows) ** 3), np.ones(n_rows)
    found = quantiles_of(log_probability, ones)
    assert len(found) == kept and np.log(found).mean() == pytest.approx(log_probability.mean(), rel=1e-9)
    np.testing.assert_allclose(quantiles_of(log_probability, 0.3 * ones), found, rtol=1e-9)
    weight = rng.exponential(size=n_rows)
    mean = np.average(log_probability, weights=weight)
    assert np.log(quantiles_of(log_probability, weight)).mean() == pytest.approx(mean, rel=1e-9)
    if kept == n_rows:
        np.testing.assert_allclose(found, np.exp(np.sort(log_probability)), rtol=1e-9)


# Leave-one-out

LOO_GRID = {"noise": ["auto", 0.05, 1.0], "posterior": [Gaussian(n_noise_levels=7)]}


def left_out_scores(model, x, targets, weight=None):
    """Every score of a search from a model's own leave-one-out predictions."""
    rows = LeftOutRows(model.fit(x, targets, weight), x, targets, weight)
    average = {"axis": 0, "weights": weight}
    mean_square = np.average(np.square(rows.residuals), **average)
    spread = np.average(np.square(targets - np.average(targets, **average)), **average)
    return {
        "r2": np.mean(1 - mean_square / spread),
        "neg_mean_squared_error": -np.mean(mean_square),
        "neg_root_mean_squared_error": -np.mean(np.sqrt(mean_square)),
        None: np.mean(np.average(rows.log_density, **average)),
    }


@pytest.mark.parametrize("weighted", [False, True])
def test_leave_one_out_scores_are_those_of_each_candidate(data, weighted):
    x, y = data
    several = np.c_[y, 100 + 50 * x[:, 2] + y]
    weight = 1.0 + np.arange(240) % 3 if weighted else None
    model = DirectRegressor(FIXED_FEATURES)
    searches = {
        scoring: DirectSearchCV(model, LOO_GRID, scoring, "loo").fit(x, several, weight)
        for scoring in ("r2", "neg_mean_squared_error", "neg_root_mean_squared_error", None)
    }
    for k, candidate in enumerate(searches[None].cv_results_["params"]):
        expected = left_out_scores(clone(model).set_params(**candidate), x, several, weight)
        for scoring, search in searches.items():
            assert search.cv_results_["split0_test_score"][k] == pytest.approx(expected[scoring], rel=1e-6)
    assert searches[None].n_splits_ == 1
    best = searches[None].best_estimator_
    assert best.total_weight_ == (240 if weight is None else weight.sum())
    assert searches[None].score(x, several) == nlpd_scorer(best, x, several)


@pytest.mark.parametrize(
    ("parameters", "grid", "scoring", "cv", "message"),
    [
        ({}, {}, "neg_max_error", "loo", "scoring must be .* or nlpd_scorer with cv='loo', got 'neg_max_error'"),
        ({}, {}, crps_scorer, "loo", "scoring must be"),
        ({}, {}, None, "leave-one-out", "cv must be"),
        ({}, {"posterior": ["gaussian", "sequential"]}, None, "loo", "cv must not be 'loo' with posterior=Sequential"),
    ],
)
def test_leave_one_out_searches_that_have_no_formula_are_refused(data, parameters, grid, scoring, cv, message):
    with pytest.raises(ValueError, match=message):
        DirectSearchCV(DirectRegressor("linear", **parameters), grid, scoring, cv).fit(*data)
