"""Warnings where integers clip or move predictions."""

import pytest

from pydirect import DirectRegressor, QuadraticBNNRegressor, quantize
from pydirect.quantized.errors import IntegerArithmeticWarning


@pytest.mark.parametrize(
    "estimator",
    [
        DirectRegressor("fourier", 30, basis="raw", rank_inputs=False),
        QuadraticBNNRegressor((3,), max_iter=20, n_restarts=1),
    ],
    ids=["direct", "network"],
)
def test_columns_beyond_single_precision_are_named(data, fit, estimator):
    x, y = data(60)
    x[:, 0] += 3e8
    model = fit(estimator, x, y)
    with pytest.warns(IntegerArithmeticWarning, match=r"column 0 by up to .*subtract an origin") as caught:
        quantize(model, 4, X=x, arithmetic="integer")
    assert caught[0].filename == __file__
    quantize(model, 4, X=x)  # floating point is told nothing


def test_clipped_rows_are_counted_and_their_column_is_named(data, raw):
    x = data()[0][:9]
    x[4, 1] += 100
    with pytest.warns(IntegerArithmeticWarning, match="at 1 of 9 rows of X: column 1 is beyond the range of integers"):
        quantize(raw, 4, X=x, arithmetic="integer")
