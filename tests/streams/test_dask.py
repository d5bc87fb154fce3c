"""Fitting on Dask collections: workers' partitions, a tree of merges, a worker that dies."""

import os
import signal
import time

import numpy as np
import pytest

from pydirect import DirectRegressor, Fourier, StreamError

dask = pytest.importorskip("dask", reason="Dask is not installed: pip install 'pydirect[dask]'")
da = pytest.importorskip("dask.array", reason="Dask's arrays are not installed: pip install 'pydirect[dask]'")
distributed = pytest.importorskip("distributed", reason="distributed is not installed: pip install 'pydirect[dask]'")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

N, D = 6000, 3
RNG = np.random.default_rng(0)
X = 10 + RNG.standard_normal((N, D))
Y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 3.0 * RNG.standard_normal(N)
WEIGHT = RNG.uniform(0, 2, N)
# Well conditioned, so that rounding of the statistics is rounding of predictions.
PARAMETERS = {"features": Fourier(length_scale=1.0), "n_basis_functions": 40}
CUTS = (500, 1, 2499, 2000, 1000)


@pytest.fixture(scope="module")
def client():
    """Two worker processes, each watched by a nanny."""
    with (
        dask.config.set({"distributed.worker.daemon": True, "distributed.comm.timeouts.connect": "60s"}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, worker_dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def single():
    return DirectRegressor(**PARAMETERS).fit_stream(X, Y, WEIGHT, sample_rows=500)


def as_dask(array):
    return da.from_array(array, chunks=(CUTS, *array.shape[1:]))


def assert_same_model(model, single, rtol=1e-12):
    ours, theirs = model.statistics_, single.statistics_
    for name in ("scatter", "cross", "mean", "y_scatter"):
        a, b = getattr(ours, name), getattr(theirs, name)
        np.testing.assert_allclose(a, b, rtol=0, atol=rtol * np.abs(b).max(), err_msg=name)
    mean, std = model.predict(X[:50], return_std=True)
    expected, expected_std = single.predict(X[:50], return_std=True)
    np.testing.assert_allclose(mean, expected, rtol=rtol)
    np.testing.assert_allclose(std, expected_std, rtol=rtol)


def test_two_processes_give_the_model_of_one(client, single):
    model = DirectRegressor(**PARAMETERS).fit_stream(as_dask(X), as_dask(Y), as_dask(WEIGHT), sample_rows=500)
    np.testing.assert_array_equal(model.features_.map.frequencies, single.features_.map.frequencies)
    assert_same_model(model, single)
    assert model.statistics_.features is not None
    model.partial_fit(X[:100], Y[:100])


@pytest.fixture
def table():
    frames = pytest.importorskip("dask.dataframe", reason="Dask's data frames are not installed")
    import pandas

    table = pandas.DataFrame(X, columns=["a", "b", "c"]).assign(price=Y, weight=WEIGHT)
    with dask.config.set(scheduler="synchronous"):
        yield frames.from_pandas(table, npartitions=2)


def test_a_data_frame_is_fitted_by_the_names_of_its_columns(table, single):
    model = DirectRegressor(**PARAMETERS).fit_stream(table, "price", "weight", sample_rows=500)
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    fitted = DirectRegressor(**PARAMETERS).fit_stream(
        table[["a", "b", "c"]], table["price"], table["weight"], sample_rows=500
    )
    with pytest.warns(UserWarning, match="valid feature names"):
        assert_same_model(model, single)
    with pytest.warns(UserWarning, match="valid feature names"):
        assert_same_model(fitted, single)


def test_columns_that_features_were_not_fixed_by_are_refused(table):
    model = DirectRegressor(**PARAMETERS).fit_features(table[["a", "b", "c"]].head(500), Y[:500])
    with pytest.raises(ValueError, match=r"X must have the columns \['a', 'b', 'c'\], in this order, got \['b'"):
        model.fit_stream(table[["b", "a", "c", "price"]], "price", keep_features=True)
    with pytest.raises(ValueError, match="X must have 3 columns, as when features were fixed, got 4"):
        model.fit_stream(table, "price", keep_features=True)
    with pytest.raises(ValueError, match="X must have 3 columns, as when features were fixed, got 2"):
        model.fit_stream(as_dask(X[:, :2]), as_dask(Y), keep_features=True)


def test_partitions_without_rows_add_nothing(table, single):
    """As filters leave them."""
    kept = table[["a", "b", "c", "price"]].map_partitions(lambda part: part[part.index >= N // 2])
    by_name = DirectRegressor(**PARAMETERS).fit_stream(kept, "price", sample_rows=500)
    by_column = DirectRegressor(**PARAMETERS).fit_stream(kept[["a", "b", "c"]], kept["price"], sample_rows=500)
    expected = DirectRegressor(**PARAMETERS).fit_stream(X[N // 2 :], Y[N // 2 :], sample_rows=500)
    chunks = ((0, 2000, 0, 1000),)
    x, y = da.from_array(X[N // 2 :], chunks=(*chunks, D)), da.from_array(Y[N // 2 :], chunks=chunks)
    arrays = DirectRegressor(**PARAMETERS).fit_stream(x, y, sample_rows=500)
    for model in (by_name, by_column, arrays):
        model.__dict__.pop("feature_names_in_", None)
        assert_same_model(model, expected)


def test_a_worker_killed_in_mid_run_costs_time_only(client, single, tmp_path):
    """One partition's task kills its worker the first time; the scheduler repeats what was lost."""
    marker = str(tmp_path / "died")

    def deadly(block, block_info=None):
        if block_info and block_info[0]["chunk-location"][0] == 3 and not os.path.exists(marker):
            with open(marker, "w"):
                pass
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.02)
        return block

    model = DirectRegressor(**PARAMETERS).fit_features(X[:500], Y[:500])
    expected = DirectRegressor(**PARAMETERS).fit_features(X[:500], Y[:500]).fit_stream(X, Y, keep_features=True)
    before = set(client.run(os.getpid).values())
    x = as_dask(X).map_blocks(deadly, dtype=float, meta=np.empty((0, 0)))
    model.fit_stream(x, as_dask(Y), keep_features=True)
    assert os.path.exists(marker)
    assert_same_model(model, expected)
    client.wait_for_workers(2, timeout=60)
    assert set(client.run(os.getpid).values()) != before


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((as_dask(X), Y), {}, TypeError, "must be Dask collections like X"),
        ((as_dask(X), "price"), {}, TypeError, "must be arrays when X is not a data frame"),
        ((as_dask(X), da.from_array(Y, chunks=3000)), {}, ValueError, r"the same partitions, got \[5, 2\]"),
        ((as_dask(X), as_dask(Y)), {"checkpoint": "c"}, ValueError, "must not be given for Dask"),
        ((as_dask(X * np.nan), as_dask(Y)), {}, StreamError, r"partition \d, its row 0: column 0 of X must be finite"),
    ],
)
def test_what_does_not_fit_together_is_refused_by_name(arguments, options, error, message):
    with dask.config.set(scheduler="sync"), pytest.raises(error, match=message):
        DirectRegressor(**PARAMETERS).fit_stream(*arguments, **options)


def test_columns_of_strings_are_named(table):
    frame = table[["a", "price"]].assign(town="Oslo")
    with dask.config.set(scheduler="sync"):
        with pytest.raises(StreamError, match=r"partition \d: column 'town' of X must hold real numbers"):
            DirectRegressor("linear").fit_stream(frame, "price")
        with pytest.raises(ValueError, match="y must name each target once"):
            DirectRegressor("linear").fit_stream(frame, ["price", "price"])
        with pytest.raises(ValueError, match="X must have columns to predict from"):
            DirectRegressor("linear").fit_stream(frame[["price"]], "price")
