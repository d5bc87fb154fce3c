"""Saved models predict bit for bit the same; anything else is refused, never crashes and never guesses."""

import copy
import pickle
import warnings

import numpy as np
import pytest
from scipy.linalg import lapack
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

import pydirect
from pydirect import (
    Columns,
    DirectRegressor,
    Fourier,
    Gaussian,
    GaussianPrior,
    LaplacePrior,
    Nystroem,
    Polynomial,
    Sequential,
    SpikeAndSlabPrior,
    StudentTPrior,
    TablePrior,
)
from pydirect.estimators._estimator import as_json
from pydirect.persistence import container as persistence

pytestmark = pytest.mark.filterwarnings("ignore::pydirect.direct.CoarseLevelsWarning")

RNG = np.random.default_rng(0)
X, NEW = RNG.standard_normal((40, 3)), RNG.standard_normal((9, 3)) * 2
Y = X[:, 0] + 0.3 * X[:, 1] ** 2 + 0.1 * RNG.standard_normal(40)


def fit(*, targets=Y, **parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return DirectRegressor(n_basis_functions=24, **parameters).fit(X, targets)


def predictions(model):
    parts = [*model.predict(NEW, return_std=True), *model.predict_parts(NEW), *model.predict_interval(NEW)]
    return b"".join(np.ascontiguousarray(p).tobytes() for p in [*parts, model.sample_y(NEW, 3), np.array(model.elbo_)])


def test_files_hold_one_matrix_in_single_precision_for_all_outputs(tmp_path):
    x = RNG.standard_normal((700, 2))
    y = np.sin(3 * x) + 0.1 * RNG.standard_normal((700, 2))
    model = DirectRegressor(features=Nystroem(length_scale=0.3), n_basis_functions=600, local=False).fit(x, y)
    assert model.posteriors_[0].vectors.shape == (600, 600)
    model.save(tmp_path / "m")
    assert (tmp_path / "m").stat().st_size < 4 * 600**2 + 1e6
    loaded = pydirect.load(tmp_path / "m")
    for rows in (NEW[:, :2], NEW[:1, :2]):
        for name in ("predict", "predict_parts", "sample_y"):
            options = {"return_std": True} if name == "predict" else {}
            found, expected = (np.array(getattr(m, name)(rows, **options)) for m in (loaded, model))
            assert found.tobytes() == expected.tobytes(), name


FACTORED = hasattr(lapack, "dstevd")  # from SciPy 1.16 on


@pytest.mark.parametrize("n_outputs", [1, 2])
def test_eigenvectors_have_the_same_bits_whatever_needs_them_first(tmp_path, n_outputs):
    x = RNG.standard_normal((700, 2))
    y = np.sin(3 * x) + [0.1, 0.5] * RNG.standard_normal((700, 2))

    def fitted(n_threads):
        model = DirectRegressor(
            features=Nystroem(length_scale=0.3), n_basis_functions=520, noise="constant", local=False
        )
        model.set_params(n_threads=n_threads).fit(x, y[:, :n_outputs])
        assert not any(posterior.rotation.is_formed for posterior in model.posteriors_) or not FACTORED
        return model

    def deviations(model):
        return model.predict(NEW[:, :2], return_std=True)[1].tobytes()

    model, other = fitted(1), fitted(2)
    model.predict(NEW[:, :2])
    assert not any(posterior.rotation.is_formed for posterior in model.posteriors_) or not FACTORED
    model.save(tmp_path / "before")
    expected = deviations(model)
    model.save(tmp_path / "after")
    assert (tmp_path / "before").read_bytes() == (tmp_path / "after").read_bytes()
    twin, copied = pickle.loads(pickle.dumps(other)), copy.deepcopy(other)
    for again in (pydirect.load(tmp_path / "before"), twin, copied, other):
        assert deviations(again) == expected


@pytest.mark.parametrize(
    "parameters",
    [
        *({"posterior": Sequential(prior=p)} for p in ("laplace", LaplacePrior(2.0), StudentTPrior(4.0))),
        *(
            {"posterior": Sequential(prior=p), "features": "linear"}
            for p in (GaussianPrior(0.5), "spike_and_slab", SpikeAndSlabPrior(0.7, LaplacePrior()))
        ),
        {"posterior": Sequential(level_scales="shared", prior=TablePrior(np.arange(1.0, 16))), "features": "linear"},
        {"posterior": Sequential(levels=np.array([-1.0, 0.0, 1.0])), "features": "linear"},
        {"features": Nystroem(length_scale=np.array([1.0, 2.0, 3.0]))},
        {"features": Nystroem(length_scale=np.float64(1.5)), "noise": np.float32(0.5)},
        {"features": Fourier(rank_inputs=False, block_dtype="float32"), "n_threads": 1},
        {"features": Polynomial(3), "columns": Columns(missing="raise")},
        {"posterior": Gaussian(n_noise_levels=1)},
        {"features": "linear", "posterior": "mean_field"},
    ],
    ids=str,
)
def test_every_parameter_survives(tmp_path, parameters):
    model = fit(**parameters)
    model.save(tmp_path / "m")
    loaded = pydirect.load(tmp_path / "m")
    assert predictions(loaded) == predictions(model)
    for name, value in model.get_params(deep=False).items():
        assert as_json(name, loaded.get_params()[name]) == as_json(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        assert predictions(loaded.fit(X, Y)) == predictions(model)


def test_metadata_and_column_names_come_back(tmp_path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=["a", "b", "ü"])
    metadata = {"target": "price", "run": [1, 2.5, None], "nested": {"ok": True}}
    model = DirectRegressor("linear").fit(frame, Y)
    model.save(tmp_path / "m", metadata)
    loaded = pydirect.load(str(tmp_path / "m"))
    assert loaded.metadata_ == metadata
    assert loaded.feature_names_in_.tolist() == ["a", "b", "ü"]
    np.testing.assert_array_equal(loaded.predict(frame), model.predict(frame))
    with pytest.raises(ValueError, match="feature names should match"):
        loaded.predict(frame[["b", "a", "ü"]])
    loaded.save(tmp_path / "again")
    assert pydirect.load(tmp_path / "again").metadata_ == metadata
    assert not hasattr(loaded.fit(X, Y), "metadata_")
    for bad in ({1: 2}, {"x": np.ones(3)}, {"x": float("nan")}):
        with pytest.raises((TypeError, ValueError), match="metadata"):
            model.save(tmp_path / "m", bad)
    assert pydirect.load(tmp_path / "m").metadata_ == metadata


def test_what_cannot_be_stored_without_pickle_is_refused_by_name(tmp_path):
    with pytest.raises(TypeError, match="features must be built in"):
        fit(features=StandardScaler()).save(tmp_path / "m")

    class Own(GaussianPrior):
        pass

    with pytest.raises(TypeError, match="prior must be"):
        fit(features="linear", posterior=Sequential(prior=Own())).save(tmp_path / "m")
    assert not list(tmp_path.iterdir())


# ---------------------------------------- refused files


@pytest.fixture
def saved(tmp_path):
    fit(features="linear").save(tmp_path / "m")
    return tmp_path / "m"


def test_damaged_files_are_refused(saved):
    content = saved.read_bytes()
    for damaged in (b"", content[:40], content[:-1], content + b"\0", content[:200] + b"?" + content[201:]):
        saved.write_bytes(damaged)
        with pytest.raises(persistence.FileFormatError, match="m: "):
            pydirect.load(saved)
    saved.write_bytes(content)
    document = persistence.read(saved)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pydirect.persistence.container.FORMAT_VERSION", 2)
        persistence.write(saved, document.kind, document.header, document.arrays)
    with pytest.raises(persistence.VersionError):
        pydirect.load(saved)
    persistence.write(saved, "statistics", {})
    with pytest.raises(persistence.KindError, match="statistics"):
        pydirect.load(saved)
    with pytest.raises(FileNotFoundError):
        pydirect.load(saved.with_name("nowhere"))


def test_a_sound_file_without_a_model_is_refused_with_the_reason(saved):
    kind = persistence.read(saved).kind
    for header in ({}, {"parameters": 3}, {"parameters": {"no_such": 1}}):
        persistence.write(saved, kind, header)
        with pytest.raises(persistence.CorruptFileError, match="contents do not make a model"):
            pydirect.load(saved)
