"""Running statistics: sums about means, merged, subtracted, decayed, saved."""

import pickle
import signal
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, strategies as st
from summed_rows import (
    FEATURES,
    RNG,
    SUMS,
    WEIGHT,
    B,
    D,
    N,
    X,
    Y,
    assert_equal_to_rounding,
    assert_same_bits,
    empty,
    of,
)

from pydirect import GaussianStatistics, RunningStatistics, _core, _progress, collect_statistics
from pydirect.features import FourierFeatures, LinearFeatures
from pydirect.features.basis import Basis
from pydirect.features.inputs import InputMap
from pydirect.features.maps import PolynomialFeatures, TransformerFeatures
from pydirect.persistence import container as persistence
from pydirect.statistics import running as running_statistics
from pydirect.statistics.gaussian import fingerprint

pytestmark = pytest.mark.filterwarnings("ignore:X does not have valid feature names")


@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_they_are_the_sums_about_zero_of_the_batch(weight):
    running = empty().update(X, Y, weight)
    batch = collect_statistics(FEATURES, X, Y, weight)
    again = running.gaussian()
    np.testing.assert_allclose(again.A, batch.A, rtol=0, atol=1e-12 * np.abs(batch.A).max())
    np.testing.assert_allclose(again.c, batch.c, rtol=0, atol=1e-12 * np.abs(batch.c).max())
    np.testing.assert_allclose(again.yty, batch.yty, rtol=1e-13)
    assert again.n_samples == pytest.approx(batch.n_samples)
    np.testing.assert_array_equal(again.A, again.A.T)


def test_they_are_the_sums_about_means():
    running = of(slice(None))
    phi, total = FEATURES.transform(X), WEIGHT.sum()
    mean, y_mean = WEIGHT @ phi / total, WEIGHT @ Y / total
    np.testing.assert_allclose(running.mean, mean, atol=1e-14)
    np.testing.assert_allclose(running.y_mean, y_mean, atol=1e-14)
    centred, weighted = phi - mean, WEIGHT[:, None] * (Y - y_mean)
    np.testing.assert_allclose(running.cross, weighted.T @ centred, atol=1e-11)
    np.testing.assert_allclose(running.y_scatter, (weighted * (Y - y_mean)).sum(axis=0))
    np.testing.assert_allclose(running.centred().A, (centred * WEIGHT[:, None]).T @ centred, atol=1e-11)
    assert (running.n_samples, running.n_rows) == (pytest.approx(total), (WEIGHT > 0).sum())


def test_targets_are_standardised_afterwards():
    location, scale = of(slice(None)).target_location_scale()
    again = of(slice(None)).gaussian(location, scale)
    direct = collect_statistics(FEATURES, X, (Y - location) / scale, WEIGHT)
    np.testing.assert_allclose(again.c, direct.c, atol=1e-11)
    np.testing.assert_allclose(again.yty, direct.yty)
    np.testing.assert_allclose(again.yty, again.n_samples)


@given(st.lists(st.integers(0, N), max_size=8), st.randoms(use_true_random=False), st.booleans())
def test_neither_cuts_nor_order_matter(cuts, random, as_tree):
    whole = of(slice(None))
    parts = [of(slice(a, z)) for a, z in zip([0, *sorted(cuts)], [*sorted(cuts), N], strict=True) if z > a]
    random.shuffle(parts)
    while as_tree and len(parts) > 1:
        parts = [parts[i].merge(parts[i + 1]) if i + 1 < len(parts) else parts[i] for i in range(0, len(parts), 2)]
    total = empty()
    for part in parts:
        total.merge(part)
    assert_equal_to_rounding(total, whole)


@pytest.mark.parametrize("mean", [1e6, 1e9])
def test_large_means_lose_nothing_where_the_naive_sum_loses_everything(mean):
    rng = np.random.default_rng(2)
    phi, w = rng.standard_normal((4000, 6)), rng.standard_normal(6)
    y = phi @ w + 0.01 * rng.standard_normal(4000)
    # Rounding of the data themselves is not what is tested here.
    phi = np.round(phi * 2.0**20) / 2.0**20
    running = empty(LinearFeatures(5), 1)
    parts = [RunningStatistics.from_arrays(phi[i] + mean, y[i] + mean) for i in np.array_split(np.arange(4000), 13)]
    running = parts[0]
    for part in parts[1:]:
        running.merge(part)
    centred = phi - phi.mean(axis=0)
    exact_y = (y + mean) - (y + mean).mean()
    expected = np.linalg.solve(centred.T @ centred, centred.T @ exact_y)
    found = running.centred()
    np.testing.assert_allclose(found.A, centred.T @ centred, rtol=0, atol=1e-11 * 4000)
    np.testing.assert_allclose(np.linalg.solve(found.A, found.c[:, 0]), expected, atol=1e-9)
    naive = GaussianStatistics.from_arrays(np.c_[phi + mean, np.ones(4000)], y + mean)
    lost = np.linalg.lstsq(naive.A, naive.c[:, 0], rcond=None)[0][:6]
    assert np.abs(lost - expected).max() > 0.01


@pytest.mark.parametrize("mean", [0.0, 1e6])
def test_rows_that_are_subtracted_were_never_there(mean):
    features = LinearFeatures(D)
    kept, gone = RNG.permutation(N)[:500], slice(0, 0)
    gone = np.setdiff1d(np.arange(N), kept)
    first, second = (empty(features).update(X[i] + mean, Y[i] + mean, WEIGHT[i]) for i in (kept, gone))
    both = first.copy().merge(second)
    assert_equal_to_rounding(both.subtract(second), first)


def test_nothing_is_left_of_all_rows():
    whole = of(slice(None))
    left = whole.copy().subtract(whole.copy())
    assert left.n_samples == left.n_rows == 0.0
    assert not left.scatter.any() and not left.mean.any()
    assert_equal_to_rounding(left.merge(whole), whole)


def test_rows_that_were_never_added_are_not_subtracted():
    few, many = of(slice(0, 50)), of(slice(50, N))
    before = few.copy()
    with pytest.raises(ValueError, match=r"cannot remove .* samples from"):
        few.subtract(many)
    stranger = empty().update(100 * X[:20], 100 * Y[:20])
    with pytest.raises(ValueError, match="never added"):
        few.subtract(stranger)
    assert_same_bits(few, before)


def test_decay_is_a_weight_of_the_past():
    faded = of(slice(0, 400)).decay(0.25).merge(of(slice(400, N)))
    weight = WEIGHT * np.where(np.arange(N) < 400, 0.25, 1.0)
    expected = empty().update(X, Y, weight)
    for name in SUMS:
        np.testing.assert_allclose(getattr(faded, name), getattr(expected, name), atol=1e-10)
    assert faded.n_samples == pytest.approx(weight.sum())
    for factor in (0.0, -1.0, 1.5, np.nan):
        with pytest.raises(ValueError, match="factor must be"):
            empty().decay(factor)


def test_a_failing_update_counts_no_row(small_blocks):
    class Failing(LinearFeatures):
        def transform(self, x, dtype=np.float64, n_threads=1):
            if (x == X[300]).all(axis=1).any():
                raise RuntimeError("row 300")
            return super().transform(x, dtype, n_threads)

    running = empty(Failing(D)).update(X[:100], Y[:100])
    before = running.copy()
    with pytest.raises(RuntimeError, match="row 300"):
        running.update(X, Y)
    assert_same_bits(running, before)


def test_statistics_of_other_feature_maps_or_scalings_do_not_merge():
    base = Basis(InputMap.fit(X, None, rank=True), LinearFeatures(2 * D))
    other = Basis(InputMap.fit(X + 1e-9, None, rank=True), LinearFeatures(2 * D))
    a, b = (empty(f).update(X, Y) for f in (base, other))
    for act in (a.merge, a.subtract):
        with pytest.raises(ValueError, match="same feature map and scaling"):
            act(b)
    with pytest.raises(ValueError, match="same numbers of weights and outputs"):
        a.merge(empty(LinearFeatures(D)))
    with pytest.raises(ValueError, match="themselves"):
        a.merge(a)


def test_fingerprints_are_of_contents():
    from sklearn.preprocessing import StandardScaler

    same = FourierFeatures(FEATURES.frequencies.copy(), FEATURES.amplitudes.copy(), np.ones(D), np.float64(1.0))
    assert fingerprint(same) == fingerprint(FEATURES) == fingerprint(pickle.loads(pickle.dumps(FEATURES)))
    different = [
        FEATURES,
        FourierFeatures(FEATURES.frequencies + 1e-15, FEATURES.amplitudes, np.ones(D), 1.0),
        LinearFeatures(3),
        LinearFeatures(4),
        PolynomialFeatures(3),
        *(TransformerFeatures(StandardScaler().fit(X * s), D, D) for s in (1.0, 2.0)),
    ]
    assert len({fingerprint(f) for f in different}) == len(different)


def test_a_fingerprint_is_the_same_in_another_process():
    code = "from pydirect.features.maps import LinearFeatures\n"
    code += "from pydirect.statistics.gaussian import fingerprint\nprint(fingerprint(LinearFeatures(7)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == fingerprint(LinearFeatures(7))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((X, Y[:, 0]), "y must have 2 outputs, as the statistics, got 1"),
        ((X[:, 0], Y), "x must have shape"),
        ((X, Y[:5]), "y must have shape"),
        ((np.where(X == X[3, 1], np.nan, X), Y), r"x must be finite, got nan at index \(3, 1\)"),
        ((X, Y, -WEIGHT), "sample_weight must not be negative"),
    ],
)
def test_rows_that_are_none_are_refused_by_name(arguments, message):
    with pytest.raises(ValueError, match=message):
        empty().update(*arguments)


def test_statistics_come_back_from_a_file_bit_for_bit_and_go_on(tmp_path):
    path = tmp_path / "s.pydirect"
    first = of(slice(0, 400))
    first.save(path)
    alone = RunningStatistics.load(path)
    assert_same_bits(alone, first)
    with pytest.raises(ValueError, match="must be given their feature map"):
        alone.update(X, Y)
    with pytest.raises(ValueError, match="features must have the fingerprint"):
        RunningStatistics.load(path, LinearFeatures(B - 1))
    grown = RunningStatistics.load(path, FEATURES).update(X[400:], Y[400:], WEIGHT[400:])
    assert_equal_to_rounding(grown, of(slice(None)))
    assert_equal_to_rounding(alone.merge(of(slice(400, N))), of(slice(None)))


def test_a_file_of_other_contents_is_refused_with_the_reason(tmp_path):
    path = tmp_path / "s.pydirect"
    of(slice(0, 400)).save(path)
    header, arrays = persistence.read(path).header, persistence.read(path).arrays
    persistence.write(path, running_statistics.KIND, header, {**arrays, "statistics.mean": np.zeros(3)})
    with pytest.raises(persistence.CorruptFileError, match="contents do not make statistics"):
        RunningStatistics.load(path)


@pytest.mark.parametrize("change", ["merge", "subtract", "decay"])
def test_ctrl_c_never_leaves_half_a_change(change, monkeypatch):
    """Wherever it strikes: here in the middle of the largest part of each."""
    whole, part = of(slice(None)), of(slice(100))
    expected, struck = whole.copy(), whole.copy()
    arguments = (0.5,) if change == "decay" else (part,)
    getattr(expected, change)(*arguments)
    merged, decayed = _core.merge_upper_triangle, _progress.Interruption.held

    def merge_upper_triangle(*a):
        signal.raise_signal(signal.SIGINT)
        merged(*a)

    def held(self):
        signal.raise_signal(signal.SIGINT)
        return decayed(self)

    monkeypatch.setattr(_core, "merge_upper_triangle", merge_upper_triangle)
    monkeypatch.setattr(_progress.Interruption, "held", held)
    with pytest.raises(KeyboardInterrupt):
        getattr(struck, change)(*arguments)
    assert_same_bits(struck, expected)


def test_statistics_add():
    rng = np.random.default_rng(0)
    phi, y = rng.standard_normal((30, 4)) + 3, rng.standard_normal((30, 2))
    parts = [RunningStatistics.from_arrays(phi[k::3], y[k::3]) for k in range(3)]
    total, twice = sum(parts), parts[0] + parts[0]
    whole, repeated = (
        RunningStatistics.from_arrays(phi, y),
        RunningStatistics.from_arrays(phi[::3], y[::3], np.full(10, 2)),
    )
    for found, expected in ((total, whole), (twice, repeated)):
        for one, other in zip(vars(found.gaussian()).values(), vars(expected.gaussian()).values(), strict=True):
            if one is not None:
                np.testing.assert_allclose(one, other, rtol=1e-12)
    assert parts[0].n_samples == 10
    with pytest.raises(TypeError):
        parts[0] + 1
