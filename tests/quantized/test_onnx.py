"""Exported ONNX graphs give, in onnxruntime at its default settings, what Python gives: standard deviations too."""

from __future__ import annotations

import builtins
from dataclasses import replace

import numpy as np
import pytest

from pydirect import DirectRegressor, Fourier, Nystroem, Polynomial, Sequential
from pydirect.features.maps import NystroemFeatures
from pydirect.quantized.onnx_graph import IR_VERSION, OPSET
from pydirect.quantized.quantize import quantize

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

PROBLEMS = ["yacht", "housing", "airfoil"]


def run(path, rows):
    """Outputs by name, of the CPU provider with default settings."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"x": rows}), strict=True))


def near_and_far(X, n=40):
    spread = X.mean(axis=0) + 3 * X.std(axis=0) * np.random.default_rng(1).standard_normal((n, X.shape[1]))
    return np.vstack([X[:n], spread])


def check_floats(quantised, got, rows, rtol):
    shape = (len(rows), quantised.n_outputs)
    classifier = quantised.classes is not None
    expected = (quantised.predict_logit if classifier else quantised.predict)(rows, return_std=True)
    mean, std = (np.reshape(a, shape) for a in expected)
    np.testing.assert_allclose(got["mean"], mean, rtol=rtol, atol=1e-3 * rtol * np.abs(mean).mean())
    np.testing.assert_allclose(got["std"], std, rtol=rtol)
    if classifier:
        np.testing.assert_allclose(got["probabilities"], quantised.predict_proba(rows), rtol=rtol, atol=1e-14)


@pytest.mark.filterwarnings("ignore:integers clip")  # far rows may be beyond the range: the same integers all the same
@pytest.mark.parametrize("name", PROBLEMS)
def test_integer_graph_gives_the_integers_of_python(tmp_path, fitted, name):
    model, X = fitted(name)
    quantised = quantize(model, 16, arithmetic="integer", X=X[:100])
    quantised.to_onnx(tmp_path / "m.onnx")
    rows = np.vstack([near_and_far(X), 1e30 * np.ones((1, X.shape[1])), -1e38 * np.ones((1, X.shape[1]))])
    rows = rows.astype(np.float32)
    got = run(tmp_path / "m.onnx", rows)
    program = quantised.program
    totals = program.totals(rows)
    for key, expected in (
        ("sum", program.sums(totals)),
        ("root", program.roots(totals)),
        ("mean", program.mean(totals)),
        ("std", program.std(totals)),
    ):
        np.testing.assert_array_equal(got[key], expected)


def test_integer_graphs_take_what_is_no_number(tmp_path, fitted):
    model, X = fitted("housing")
    quantised = quantize(model, 5, arithmetic="integer")
    quantised.to_onnx(tmp_path / "m.onnx")
    rows = near_and_far(X).astype(np.float32)
    rows[0, 0] = np.nan
    got = run(tmp_path / "m.onnx", rows)
    totals = quantised.program.totals(rows)
    np.testing.assert_array_equal(got["sum"], quantised.program.sums(totals))
    np.testing.assert_array_equal(got["root"], quantised.program.roots(totals))


@pytest.mark.parametrize("name", PROBLEMS)
def test_float_graph_agrees_to_rounding(tmp_path, fitted, name):
    model, X = fitted(name)
    quantised = quantize(model, 16)
    quantised.to_onnx(tmp_path / "m.onnx")
    rows = near_and_far(X)
    check_floats(quantised, run(tmp_path / "m.onnx", rows), rows, 1e-6)


KINDS = {
    "scores": (lambda s: s.regressor("fourier", posterior="sequential"), "two"),
    "rotated": (lambda s: s.regressor("fourier"), "two"),
    "landmarks": (lambda s: s.regressor("nystroem"), "y"),
    "linear": (lambda s: s.regressor("linear", posterior=Sequential(n_levels=7)), "y"),
    "columns": (lambda s: s.regressor("precomputed", posterior=Sequential(n_levels=31)), "y"),
    "polynomial": (lambda s: s.regressor(Polynomial(3), posterior="sequential"), "y"),
    "two": (lambda s: s.classifier("fourier", posterior="sequential"), "sign"),
    "three": (lambda s: s.classifier("linear"), "three"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_float_graphs_of_all_kinds(tmp_path, small, kind):
    estimator, target = KINDS[kind]
    quantised = quantize(small(estimator(small), target), 5)
    quantised.to_onnx(tmp_path / "m.onnx")
    rows = near_and_far(small.X)
    if kind == "landmarks":
        rows = rows[40:]  # on landmarks whitening makes much of the rounding of distances, in Python too
    check_floats(quantised, run(tmp_path / "m.onnx", rows), rows, 1e-6)


def test_classifiers_in_integers_have_probabilities(tmp_path, small):
    for target in ("sign", "three"):
        model = small(small.classifier(Fourier(rank_inputs=False), posterior="sequential"), target)
        quantised = quantize(model, 6, arithmetic="integer")
        quantised.to_onnx(tmp_path / "m.onnx")
        rows = near_and_far(small.X).astype(np.float32)
        got = run(tmp_path / "m.onnx", rows)
        np.testing.assert_array_equal(got["sum"], quantised.program.sums(quantised.program.totals(rows)))
        expected = quantised.predict_proba(rows.astype(float))
        np.testing.assert_allclose(got["probabilities"], expected, rtol=1e-9, atol=1e-14)


def test_codes_take_four_bits_and_are_gathered_not_dequantised(tmp_path, fitted):
    model, _ = fitted("yacht")
    four_bits = {onnx.TensorProto.INT4, onnx.TensorProto.UINT4}
    for arithmetic in ("float", "integer"):
        quantised = quantize(model, 16, arithmetic=arithmetic)
        quantised.to_onnx(tmp_path / "m.onnx")
        made = onnx.load(tmp_path / "m.onnx")
        (codes,) = [i for i in made.graph.initializer if i.data_type in four_bits]
        assert len(codes.raw_data) == -(-np.prod(codes.dims) // 2) == -(-quantised.codes.size // 2)
        assert not {"DequantizeLinear", "MatMulInteger"} & {node.op_type for node in made.graph.node}
        assert (made.opset_import[0].version, made.ir_version) == (OPSET, IR_VERSION)


def test_the_reference_of_the_standard_agrees(tmp_path, small):
    from onnx.reference import ReferenceEvaluator

    model = small(small.regressor(Fourier(rank_inputs=False), posterior="sequential"))
    for arithmetic, dtype in (("float", np.float64), ("integer", np.float32)):
        quantised = quantize(model, 5, arithmetic=arithmetic)
        quantised.to_onnx(tmp_path / "m.onnx")
        rows = near_and_far(small.X, 10).astype(dtype)
        mean, std = ReferenceEvaluator(str(tmp_path / "m.onnx")).run(["mean", "std"], {"x": rows})
        expected_mean, expected_std = quantised.predict(rows.astype(float), return_std=True)
        np.testing.assert_allclose(mean[:, 0], expected_mean, rtol=1e-9)
        np.testing.assert_allclose(std[:, 0], expected_std, rtol=1e-9)


def test_without_onnx_the_extra_is_named(tmp_path, small, monkeypatch):
    real = builtins.__import__

    def absent(name, *arguments, **options):
        if name == "onnx":
            raise ImportError(name)
        return real(name, *arguments, **options)

    quantised = quantize(small(small.regressor("linear", posterior=Sequential(n_levels=7))), 4)
    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(ImportError, match=r'pip install "pydirect\[onnx\]"'):
        quantised.to_onnx(tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


PRODUCT = {"product_amplitude": 0.4, "product_rates": np.array([0.0, 1.7])}
PAIRS = {"product_amplitude": 0.4, "product_rates": np.array([0.6, 1.7]), "product_order": 2}


@pytest.mark.parametrize("product", [{}, PRODUCT, PAIRS])
@pytest.mark.parametrize("smoothness", [0, 0.5, 1.5, 2.5])
def test_a_kernel_of_any_smoothness_and_with_a_product_has_a_graph(tmp_path, smoothness, product):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    model = DirectRegressor(features=Nystroem(length_scale=1.0), n_basis_functions=20, random_state=0).fit(
        X, np.sin(X[:, 0])
    )
    basis = model.features_
    kernel = replace(basis.hyperparameters, smoothness=smoothness, **product)
    features = NystroemFeatures.at(basis.map.landmarks, kernel)
    model.features_ = replace(basis, map=features, hyperparameters=kernel)
    quantised = quantize(model, 4)
    quantised.to_onnx(tmp_path / "m.onnx")
    # Rows at landmarks are at a distance of √ε in a graph that multiplies, where the first kernel has a kink.
    check_floats(quantised, run(tmp_path / "m.onnx", X), X, 1e-6 if smoothness == 0.5 else 1e-9)
