"""Forests: trees grown for the posterior of their leaves, and their integer programs in Python, C and ONNX."""

from dataclasses import replace

import numpy as np
import pytest

from pydirect import DirectClassifier, DirectRegressor
from pydirect._core import improved_tree
from pydirect.features.inputs import InputMap
from pydirect.features.maps import ForestFeatures
from pydirect.quantized.codes import unit_levels
from pydirect.quantized.compile import INPUT_UNIT, short_inputs, threshold_step
from pydirect.quantized.device import shortened
from pydirect.quantized.fit_quantized import _candidates
from pydirect.quantized.predictors import load_quantized
from pydirect.quantized.program import AccumulatorOverflowError, shifted
from pydirect.quantized.proposals import RIDGE, growing_forest
from pydirect.quantized.task import LabelTask, TargetTask


def rows(n=150, d=3, seed=0):
    rng = np.random.default_rng(seed)
    x = np.rint(rng.standard_normal((n, d)) / INPUT_UNIT) * INPUT_UNIT
    y = np.sin(2 * x[:, :1]) + (x[:, 1:2] > 0.3) + 0.1 * rng.standard_normal((n, 1))
    return x, np.hstack([y, -y]), rng.uniform(0.5, 2.0, n)


@pytest.fixture(scope="module")
def task():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((120, 3)) * [1, 5, 0.1] + [0, 100, 3]
    y = np.where(x[:, 0] > 0, np.sin(x[:, 1]), 2 * x[:, 0]) + 0.1 * rng.standard_normal(120)
    return TargetTask.begin(x, np.c_[y, y**2], None, DirectRegressor().search_settings(), (), unit_levels(15)), x


@pytest.fixture(scope="module")
def forest(task):
    """Quantised forest of six trees for two outputs, and its X."""
    own, x = task
    make = growing_forest(*own.rows(np.arange(len(own.y))))
    return own.cast(make(6), [3])[0], x


def test_leaves_are_the_answers_to_the_questions_of_every_level():
    columns, thresholds = np.array([[0, 2], [1, 1]]), np.array([[0.0, 1.0], [-1.0, 2.0]])
    phi = ForestFeatures(columns, thresholds, 0.5, np.full(3, 0.3)).transform(
        np.array([[0.5, -2.0, 0.0], [-1.0, 3.0, 7.0]])
    )
    np.testing.assert_array_equal(phi[0], [0, 0, 0.5, 0, 0.5, 0, 0, 0, 0.15, -0.6, 0])
    np.testing.assert_array_equal(phi[1], [0, 0.5, 0, 0, 0, 0, 0, 0.5, -0.3, 0.3 * 3, 0.3 * 5])


def test_a_forest_is_the_same_whatever_was_asked_for_before():
    x, y, weight = rows()
    make = growing_forest(x, y, weight)
    large, small = make(8), make(4)
    np.testing.assert_array_equal(large.thresholds, growing_forest(x, y, weight)(8).thresholds)
    np.testing.assert_array_equal(small.thresholds, growing_forest(x, y, weight)(4).thresholds)
    assert large.thresholds.shape == (8, 3) and make(0).thresholds.shape == (0, 3)


def test_each_split_that_a_tree_has_is_replaced_by_the_best_beside_its_others():
    rng = np.random.default_rng(0)
    cells = rng.integers(0, 5, (80, 3)).astype(np.uint8)
    r, weight, seen = rng.standard_normal((80, 2)), rng.random(80), rng.random(80) < 0.7

    def fall(splits, rows):
        leaf = np.array([cells[:, split // 5] > split % 5 for split in splits]).T @ [2, 1]
        sums = [((weight * rows)[leaf == k] @ r[leaf == k], (weight * rows)[leaf == k].sum()) for k in range(4)]
        means = np.array([total / (count + RIDGE) for total, count in sums])
        return sum(total @ mean for (total, _), mean in zip(sums, means, strict=True)), means[leaf]

    for outputs in (slice(0, 2), slice(0, 1)):
        r = np.ascontiguousarray(r[:, outputs])
        splits = [1, 6]
        for _ in range(2):
            splits = [splits[1], max(range(15), key=lambda split: fall([splits[1], split], seen)[0])]
        found, explained = improved_tree(cells, seen, weight, r, [1, 6], 2, 5, RIDGE)
        best = fall(splits, seen)[0]
        assert fall(found, seen)[0] == pytest.approx(best) and best > fall([1, 6], seen)[0]
        np.testing.assert_allclose(explained, fall(found, np.ones(80))[1])


def test_trees_are_improved_until_they_find_what_no_single_split_shows():
    x = np.random.default_rng(0).standard_normal((400, 5))
    y = np.sign(x[:, :1] * x[:, 1:2])
    phi = growing_forest(x, y, np.ones(400), 2)(4).transform(x)
    left = y - phi @ np.linalg.solve(phi.T @ phi + RIDGE * np.eye(phi.shape[1]), phi.T @ y)
    assert np.mean(left**2) < 0.1


def test_the_lowest_bits_of_a_threshold_are_the_number_of_its_input(forest):
    program = forest[0].program
    np.testing.assert_array_equal(program.thresholds % threshold_step(program.n_inputs), program.compared)
    splits = forest[0].on_device().tables()["trees"]["splits"].astype(np.int64)
    np.testing.assert_array_equal(splits - 2**15, program.thresholds)


def test_gains_of_trees_are_halved_where_the_table_says(forest):
    gain, ends = forest[0].program.gain[: 6 * 8 : 8], forest[0].on_device().groups()["group_end"].tolist()
    assert ends[-1] == 6
    expected = [int(gain[0]) >> sum(end <= tree for end in ends) for tree in range(6)]
    np.testing.assert_array_equal(gain, expected)


def test_constants_of_inputs_take_sixteen_bits_unless_a_mean_is_far():
    x = np.random.default_rng(0).standard_normal((50, 3)) * [1, 5, 0.1] + [0, 100, 1e6]
    exact = InputMap.fit(x, None, rank=False)
    short = short_inputs(exact)
    multiplier = (1 / (short.scale * INPUT_UNIT)).astype(np.float32)
    assert not (multiplier.view(np.uint32) & 0xFFFF).any()
    assert not (short.mean[:2].astype(np.float32).view(np.uint32) & 0xFFFF).any()
    np.testing.assert_allclose(short.scale, exact.scale, rtol=2**-8)
    assert (np.abs(short.mean - exact.mean) <= exact.scale / 16).all() and short.mean[2] == exact.mean[2]
    tables = {"a": multiplier, "b": short.mean[:2].astype(np.float32)}
    for name, words in shortened(tables).items():
        assert words.dtype == np.uint16
        np.testing.assert_array_equal((words.astype(np.uint32) << 16).view(np.float32), tables[name])
    far = {"a": multiplier, "b": short.mean.astype(np.float32)}
    assert shortened(far) is far


def test_integers_are_nearly_floats(forest):
    model, x = forest
    assert model.program.n_leaves == 6 * 8
    np.testing.assert_array_equal(model.totals(x), model.program.totals(x))
    off = np.abs(model.functions(x) - model.with_arithmetic("float").functions(x)).max(axis=(0, 2))
    assert (off < 0.001 * model.predict(x).std(axis=0)).all()


def test_totals_are_sums_of_the_leaves_that_rows_reach(forest):
    model, x = forest
    program, q = model.program, model.program.quantise_inputs(x[:20])
    weights = program.weights
    for row, total in zip(q, program.totals(x[:20]).reshape(20, -1), strict=True):
        expected = np.zeros(program.n_columns, dtype=np.int64)
        for tree, (columns, thresholds) in enumerate(zip(program.compared, program.thresholds, strict=True)):
            leaf = 0
            for column, threshold in zip(columns, thresholds, strict=True):
                leaf = 2 * leaf + int(row[column] > threshold)
            expected += int(program.gain[8 * tree]) * weights[8 * tree + leaf]
        linear = row[program.linear].tolist()
        for value, gain, own in zip(linear, program.gain[program.n_leaves :], weights[program.n_leaves :], strict=True):
            expected += value * int(gain) * own
        assert np.abs(expected).max() <= program.prove().accumulator
        np.testing.assert_array_equal(shifted(expected, program.total_shift), total)
    with pytest.raises(AccumulatorOverflowError):
        replace(program, multipliers=program.multipliers * 2**11).prove()


@pytest.mark.parametrize("counts", [False, True])
def test_headers_give_the_integers_of_python(forest, c, tmp_path, counts):
    model, x = forest
    options = {"counts_per_unit": 1000, "zero_count": 5, "output_counts_per_unit": 100} if counts else {}
    model.to_c(tmp_path / "model.h", prefix="m", **options)
    near = c.far_and_near(x)
    far = np.clip(np.rint(5 + 1000 * near.astype(float)), -(2**31), 2**31 - 1) if counts else near
    output = c.compile_and_run(tmp_path, c.INTEGER_MAIN, far, "-fsanitize=undefined", "-fno-sanitize-recover")
    device = model.on_device(**options)
    c.check_integers(device, output, far)
    report = model.report(device)
    assert c.stored_bytes((tmp_path / "model.h").read_text()) == report["bytes"]["total"]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_headers_of_forests_of_classes_name_them_and_give_their_probabilities(task, c, tmp_path, n_classes):
    x = task[1]
    labels = np.array(["off", "idle", "on"])[
        np.digitize(x[:, 1], np.quantile(x[:, 1], [0.4, 0.7]) if n_classes > 2 else [100])
    ]
    own = LabelTask.begin(x, labels, None, DirectClassifier().search_settings(), ("a", "b", "c"), unit_levels(15))
    (model,) = own.cast(growing_forest(*own.rows(np.arange(len(x))))(3), [2])
    assert model.program.n_leaves == 3 * 8
    model.to_c(tmp_path / "model.h", prefix="m")
    rows = c.far_and_near(x)
    c.check_integers(model.on_device(), c.compile_and_run(tmp_path, c.INTEGER_MAIN, rows), rows)
    text = (tmp_path / "model.h").read_text()
    assert all(f"class {k} = {name}" in text for k, name in enumerate(np.unique(labels))) and "x[1] = b" in text


@pytest.mark.parametrize("arithmetic", ["integer", "float"])
def test_graphs_give_what_python_gives(forest, tmp_path, arithmetic):
    pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    model, x = forest
    model = model.with_arithmetic(arithmetic)
    model.to_onnx(tmp_path / "m.onnx")
    own = x.astype(np.float32)
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    given = own if arithmetic == "integer" else own.astype(np.float64)
    mean, std = session.run(["mean", "std"], {"x": given})
    expected = model.predict(own, return_std=True)
    np.testing.assert_allclose(mean, expected[0], rtol=1e-9)
    np.testing.assert_allclose(std, expected[1], rtol=1e-9)


@pytest.mark.parametrize("n_trees", [0, 6])
def test_saved_forests_predict_the_same_bits_and_have_a_graph(task, forest, tmp_path, n_trees):
    own, x = task
    model = forest[0]
    if not n_trees:  # what is left is linear
        make = growing_forest(*own.rows(np.arange(len(own.y))))
        (model,) = own.cast(make(0), [2])
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(load_quantized(tmp_path / "m").totals(x), model.totals(x))
    pytest.importorskip("onnx")
    for arithmetic in ("float", "integer"):
        model.with_arithmetic(arithmetic).to_onnx(tmp_path / f"{arithmetic}.onnx")


def test_held_out_rows_widen_the_variance_over_the_samples_unless_these_are_few(task):
    own = task[0]
    make = growing_forest(*own.rows(np.arange(len(own.y))))
    for n_samples, factor in ((8, 4.0), (2, 1.0)):
        (model,) = own.cast(make(6), [n_samples])
        functions = own.sample_functions(model)
        variance = 4 * functions.var(axis=2) + model.noise  # each row is one standard deviation away
        seen = replace(own, y=(functions.mean(axis=2) + np.sqrt(variance)) / own.outputs.scale)
        calibrated = seen.score(model, 0.0).calibrated(model)
        np.testing.assert_allclose(calibrated.noise, model.noise / factor)
        if n_samples == 8:
            std = calibrated.with_arithmetic("float").predict(task[1], return_std=True)[1]
            np.testing.assert_allclose(np.sort(std, axis=0), np.sort(np.sqrt(variance), axis=0), rtol=1e-3)


def test_more_room_only_adds_candidates(task):
    own = task[0]
    part, held = own.restricted(np.arange(90)), own.restricted(np.arange(90, 120))
    limits = [{"max_flash": 900}, {"max_flash": 1400}, {"max_flash": 1400, "max_stack": 170, "max_instructions": 9000}]
    small, large, limited = (_candidates(part, held, (1,), m) for m in limits)
    assert small and set(small) < set(large) and set(limited) <= set(large)
    assert all(large[key].score.loss == pytest.approx(own.score.loss) for key, own in small.items())
