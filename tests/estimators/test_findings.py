"""What was found in the inputs, in the words of `summary`."""

import numpy as np
import pandas as pd
import pytest

from pydirect import Columns, DirectRegressor, Nystroem

RNG = np.random.default_rng(0)
SMALL = {"features": Nystroem(max_search_rows=200), "n_basis_functions": 40}


def test_relevant_columns_and_length_scales_are_named():
    X = pd.DataFrame(RNG.standard_normal((400, 8)), columns=list("abcdefgh"))
    model = DirectRegressor(**SMALL).fit(X, np.sin(3 * X["c"]) + 0.1 * RNG.standard_normal(400))
    words = model.summary()
    assert "The screen of 8 columns found 1 relevant: c." in words
    assert "Kernel: Matérn of smoothness " in words and "the shortest of 8: c " in words


def test_columns_without_effect_and_without_names_are_said_to_be_so():
    words = DirectRegressor(**SMALL).fit(RNG.standard_normal((400, 3)), RNG.standard_normal(400)).summary()
    assert "found none that stands out" in words and "column 0 " in words


def test_categories_and_missing_numbers_are_told():
    X = pd.DataFrame({"size": RNG.standard_normal(200), "colour": RNG.choice(["red", "green"], 200)})
    X["age"] = np.where(np.arange(200) % 5 == 0, np.nan, X["size"])
    model = DirectRegressor(**SMALL, columns=Columns(missing="indicator")).fit(X, X["size"] + (X["colour"] == "red"))
    words = model.summary()
    assert "Categories, one column of 0 and 1 each: colour (2)." in words
    assert "Missing numbers of age are imputed from the other columns; that they are missing is told of age." in words
    kernel = words[words.index("Kernel:") :]
    # One length-scale for all of its categories, in each part of the kernel.
    assert 1 <= kernel.count("colour") <= 1 + kernel.count("of the variance of y; length-scales")
    assert "colour=" not in kernel


@pytest.mark.parametrize("features", ["linear", Nystroem(length_scale=2.0)])
def test_nothing_is_said_of_a_search_that_was_not_made(features):
    words = DirectRegressor(features, n_basis_functions=20).fit(RNG.standard_normal((60, 2)), np.arange(60.0)).summary()
    assert "screen" not in words and ("Kernel" in words) == (features != "linear")


@pytest.mark.parametrize("weight", [None, [0.0, 2.0, 0.0]], ids=["one row", "one positive weight"])
def test_a_summary_says_that_deviations_of_a_single_row_mean_nothing(weight):
    n = 1 if weight is None else 3
    model = DirectRegressor().fit(np.arange(2.0 * n).reshape(n, 2), np.arange(3.0, 3.0 + n), weight)
    assert "Standard deviations mean nothing" in model.summary()
    assert "mean nothing" not in DirectRegressor().fit([[0.0], [1.0]], [0.0, 1.0]).summary()
