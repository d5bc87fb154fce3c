"""Classification of streamed rows: the model of `fit`, from any source, and after interruptions."""

import signal
from dataclasses import replace

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from sklearn.exceptions import ConvergenceWarning

from pydirect import DirectClassifier, Fourier, Nystroem, StreamError, StreamInterrupt, load
from pydirect.estimators import left_out
from pydirect.logistic import ascent, rows

pytestmark = pytest.mark.filterwarnings("ignore:X does not have valid feature names")

N, D = 600, 3
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, D))
Z = 2 * np.sin(2 * X[:, 0]) + X[:, 1] + RNG.logistic(size=N)
TWO = np.where(Z > 0, "yes", "no")
THREE = np.digitize(Z, [-1.0, 1.0])
WEIGHT = RNG.integers(0, 4, N).astype(float)
FAST = {"features": Fourier(length_scale=1.0), "n_basis_functions": 20, "n_threads": 1}


def as_blocks(y=TWO, size=70, weight=None):
    for i in range(0, N, size):
        rows = slice(i, i + size)
        yield (X[rows], y[rows]) if weight is None else (X[rows], y[rows], weight[rows])


def write_parquet(path, y=TWO, **more):
    columns = {f"x{j}": X[:, j] for j in range(D)} | {"label": y} | more
    pyarrow.parquet.write_table(pyarrow.table(columns), path, row_group_size=150)
    return path


@pytest.fixture
def to_the_end(monkeypatch):
    """Iterate until rounding decides."""
    monkeypatch.setattr(ascent, "RISE", 1e-12)
    monkeypatch.setattr(ascent, "RELATIVE_RISE", 0.0)
    monkeypatch.setattr(ascent, "RELATIVE_RISE_OF_BEST", 0.0)
    monkeypatch.setattr(rows, "MEAN_OPTIONS", {"maxiter": 500, "ftol": 1e-15, "gtol": 1e-10})
    for module in (rows, left_out):
        monkeypatch.setattr(module, "FACTORS", (1.0,))  # or a sample of the rows chooses it


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr("pydirect.estimators.class_streams.block_rows", lambda n_weights, dtype: 64)
    monkeypatch.setattr("pydirect.statistics.running.block_rows", lambda n_weights, dtype: 64)


@pytest.mark.parametrize(
    ("y", "parameters"),
    [
        (TWO, {}),
        (THREE, {}),
        (TWO, {"features": "linear"}),
        (TWO, {"class_weight": "balanced"}),
        (THREE, {"class_weight": {0: 2.0, 1: 0.0}}),
    ],
)
def test_the_model_is_that_of_rows_in_memory(to_the_end, small_blocks, y, parameters):
    x, y, weight = X[:200], y[:200], WEIGHT[:200]
    batch = DirectClassifier(**{**FAST, "n_basis_functions": 8, **parameters}).fit(x, y, weight)
    stream = DirectClassifier(**{**FAST, "n_basis_functions": 8, **parameters}).fit(x, y, weight)
    stream.fit_stream(x, y, weight, keep_features=True, sample_rows=100)
    assert list(stream.classes_) == list(batch.classes_)
    np.testing.assert_allclose(stream.intercept_, batch.intercept_, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(stream.prior_scale_, batch.prior_scale_, rtol=1e-5)
    assert stream.sharpness_ == 1  # a fit to a stream leaves no labels out for it
    batch.model_ = replace(batch.model_, sharpness=1.0)
    np.testing.assert_allclose(stream.predict_proba(X), batch.predict_proba(X), atol=1e-5)
    assert stream.elbo_ == pytest.approx(batch.elbo_, abs=1e-7)
    assert stream.total_weight_ == pytest.approx(batch.total_weight_)


def test_every_source_and_number_of_threads_gives_the_same_bits(tmp_path, small_blocks):
    folder = tmp_path / "folder"
    folder.mkdir()
    table = pyarrow.parquet.read_table(write_parquet(tmp_path / "one.parquet", w=WEIGHT))
    pyarrow.parquet.write_table(table.slice(0, 250), folder / "a.parquet")
    pyarrow.parquet.write_table(table.slice(250), folder / "b.parquet")
    np.save(tmp_path / "x.npy", X)
    calls = {
        "mapped": (np.load(tmp_path / "x.npy", mmap_mode="r"), TWO, WEIGHT),
        "list": (list(as_blocks(weight=WEIGHT)),),
        "function": (lambda: as_blocks(size=7, weight=WEIGHT),),
        "file": (tmp_path / "one.parquet", "label", "w"),
        "folder": (folder, "label", "w"),
    }
    expected = DirectClassifier(**FAST).fit_stream(X, TWO, WEIGHT, sample_rows=200)
    for name, arguments in calls.items():
        for n_threads in (2, 5) if name == "list" else (1,):
            model = DirectClassifier(**{**FAST, "n_threads": n_threads}).fit_stream(*arguments, sample_rows=200)
            assert (model.predict_proba(X) == expected.predict_proba(X)).all(), (name, n_threads)
            assert list(model.classes_) == ["no", "yes"]
    assert expected.score(X, TWO) > 0.7


def test_learned_features_come_from_the_sample(tmp_path):
    model = DirectClassifier(Nystroem(max_search_rows=60), 40).fit_stream(X, THREE, sample_rows=150)
    assert model.features_.n_weights == 40
    assert model.score(X, THREE) > 0.6
    model.save(tmp_path / "m.pydirect")
    assert (load(tmp_path / "m.pydirect").predict_proba(X) == model.predict_proba(X)).all()


@pytest.mark.parametrize(
    "labels",
    [THREE, THREE.astype(np.int8), THREE.astype(float), THREE > 1, np.array(["a", "bb", "c"], dtype=object)[THREE]],
)
def test_labels_of_any_kind(tmp_path, labels):
    model = DirectClassifier(**FAST).fit_stream(write_parquet(tmp_path / "a.parquet", labels), "label")
    expected = DirectClassifier(**FAST).fit(X, labels)
    assert model.classes_.tolist() == expected.classes_.tolist()
    assert (model.predict(X) == expected.predict(X)).mean() > 0.95


def test_rows_without_a_label_are_left_out_on_request(tmp_path):
    labels = [None if i in (3, 500) else str(label) for i, label in enumerate(THREE)]
    path = write_parquet(tmp_path / "a.parquet", labels)
    assert DirectClassifier(**FAST).fit_stream(path, "label", drop_missing=True).total_weight_ == N - 2
    with pytest.raises(StreamError, match=r"a\.parquet, data row 4 \(row group 0, its row 4\): y must be finite"):
        DirectClassifier(**FAST).fit_stream(path, "label")


@pytest.mark.parametrize(
    ("parameters", "data", "error", "message"),
    [
        ({"bound": "jaakkola"}, (X, TWO), ValueError, "bound must be 'softmax' for fit_stream"),
        ({}, (as_blocks(),), ValueError, "X must be readable many times"),
        ({}, (X, np.c_[THREE, THREE]), (ValueError, TypeError), "labels must be one column"),
        ({}, (X, Z), ValueError, "y must hold labels, got the number"),
        ({}, ([(X[:9], TWO[:9]), (X[9:], Z[9:])],), StreamError, "block 1: y must hold labels, got the number"),
        ({}, (X, np.full(N, "a")), ValueError, "at least two classes, got one class, 'a'"),
        ({}, ([(X[:9], TWO[:9]), (X[9:], THREE[9:])],), TypeError, "of one type, got int and str"),
        ({"class_weight": {0: -1.0}}, (X, THREE), ValueError, "class_weight must be finite and non-negative"),
    ],
)
def test_unusable_arguments_are_refused_by_name(parameters, data, error, message):
    with pytest.raises(error, match=message):
        DirectClassifier(**{**FAST, **parameters}).fit_stream(*data)


@pytest.mark.parametrize("change", ["fewer", "label"])
def test_data_that_change_between_passes_are_refused(small_blocks, change):
    passes = []

    def blocks():
        passes.append(1)
        late = len(passes) > 4
        yield X[:300], TWO[:300]
        if not (late and change == "fewer"):
            yield X[300:], np.where(late, "new", TWO[300:])

    message = "the data end after 300 rows" if change == "fewer" else r"row 300 \(block 1, .*has not seen"
    with pytest.raises(StreamError, match=message):
        DirectClassifier(**FAST).fit_stream(blocks)


@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_an_interruption_keeps_the_last_posterior_of_all_rows(small_blocks, n_threads):
    def blocks(after):
        passes = []

        def open_again():
            passes.append(1)
            for k, block in enumerate(as_blocks()):
                if len(passes) == after and k == 5:
                    signal.raise_signal(signal.SIGINT)
                yield block

        return open_again

    for after in (2, 3, 4):  # pass 1 looks at the first block only
        with pytest.raises(StreamInterrupt, match="interrupted"):
            DirectClassifier(**{**FAST, "n_threads": n_threads}).fit_stream(blocks(after))
    with pytest.warns(ConvergenceWarning, match="the fit is interrupted"):
        model = DirectClassifier(**{**FAST, "n_threads": n_threads}).fit_stream(blocks(5), sample_rows=100)
    assert model.interrupted_ and not model.converged_
    assert np.isfinite(model.elbo_)
    assert model.score(X, TWO) > 0.65
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_columns_are_checked_before_any_pass(monkeypatch):
    model = DirectClassifier(**FAST).fit(X, TWO)
    monkeypatch.setattr("pydirect.streams.run.sample_stream", lambda *a, **k: pytest.fail("a pass was made"))
    with pytest.raises(ValueError, match="X must have 3 columns, as when features were fixed, got 2"):
        model.fit_stream(X[:, :2], TWO, keep_features=True)
