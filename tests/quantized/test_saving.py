"""Files of quantised models."""

import numpy as np
import pytest

import pydirect
from pydirect import DirectClassifier, DirectRegressor, quantize
from pydirect.persistence.container import FileFormatError, KindError, read, write
from pydirect.quantized.predictors import load_quantized


def test_saved_models_predict_the_same_bits(data, fit, raw, decorrelated, tmp_path):
    x, y = data()
    classifier = fit(DirectClassifier(n_basis_functions=20), x, np.where(y > 1, "yes", "no"))
    for k, model in enumerate(
        (
            quantize(raw, 8, arithmetic="integer"),
            quantize(decorrelated, 8),
            quantize(fit(DirectRegressor(n_basis_functions=20), x, y), 4),
            quantize(classifier, 4),
            quantize(fit(DirectRegressor(posterior="sequential", features="polynomial"), x, y), 4),
        )
    ):
        path = tmp_path / f"{k}.pydirect"
        model.save(path)
        again = load_quantized(path)
        assert type(again) is type(model) and again.arithmetic == model.arithmetic
        np.testing.assert_array_equal(again.functions(x), model.functions(x))
        if k < 3:
            np.testing.assert_array_equal(again.predict(x, return_std=True), model.predict(x, return_std=True))
        else:
            np.testing.assert_array_equal(again.predict(x), model.predict(x))


def test_damaged_files_are_refused_whatever_was_done_to_them(raw, tmp_path):
    path = tmp_path / "model.pydirect"
    quantize(raw, 4, arithmetic="integer").save(path)
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    for k in range(150):
        damaged = bytearray(whole)
        if k % 3 == 0:
            damaged = damaged[: rng.integers(len(whole))]
        elif k % 3 == 1:
            damaged[rng.integers(len(whole))] ^= 1 << int(rng.integers(8))
        else:
            damaged.insert(int(rng.integers(len(whole))), int(rng.integers(256)))
        path.write_bytes(bytes(damaged))
        with pytest.raises(FileFormatError):
            load_quantized(path)


def test_intact_files_with_invalid_contents_are_refused(raw, tmp_path):
    path = tmp_path / "model.pydirect"
    quantize(raw, 4, arithmetic="integer").save(path)
    document = read(path, "pydirect.QuantizedRegressor")

    def changed(header=(), arrays=()):
        new_model = {**document.header["model"], **dict(header)}
        write(path, document.kind, {**document.header, "model": new_model}, {**document.arrays, **dict(arrays)})
        with pytest.raises(FileFormatError, match="do not make a model"):
            load_quantized(path)

    write(path, document.kind, document.header, document.arrays)
    load_quantized(path)  # intact
    packed = document.header["model"]["packed"]
    for change in ({"shape": [3, 4]}, {"shape": [2**20, 2**30]}, {"bits": 5}):
        changed({"packed": {**packed, **change}})
    for change in ({"n_features_in": 3.0}, {"one_dimensional": 1}):
        changed(change)
    for names in (["a"], ["a", "b", 3], "abc"):
        changed({"feature_names": names})
    basis = document.header["model"]["basis"]
    features = {**basis["features"], "map": {**basis["features"]["map"], "kind": "linear"}}
    changed({"basis": {**basis, "features": features}})
    changed({"n_features_in": 7})
    changed(arrays={"model.levels": document.arrays["model.levels"][:3]})
    changed(arrays={"model.scale": np.array([np.nan])})
    changed(arrays={"model.noise": np.array([-1.0])})
    changed(arrays={"model.basis.order": document.arrays["model.basis.order"] + 10_000})


def test_the_reader_of_other_models_names_this_one(raw, tmp_path):
    quantize(raw, 4).save(tmp_path / "m")
    with pytest.raises(
        KindError, match=r"'pydirect.QuantizedRegressor', which pydirect.quantized.load_quantized reads$"
    ):
        pydirect.load(tmp_path / "m")
