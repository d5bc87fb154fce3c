"""Tables of levels that all weights share."""

import numpy as np
import pytest

from pydirect import DirectRegressor
from pydirect.distributions.levels import power_of_two_levels
from pydirect.quantized.levels import shared_levels

RAW = {"basis": "raw", "n_basis_functions": 80, "rank_inputs": False}


def test_outputs_share_one_table_of_levels():
    table = np.array([-1.0, 1e-15, 1.0])
    np.testing.assert_array_equal(shared_levels([table, table * (1 + 1e-8)]), [-1.0, 0.0, 1.0])
    with pytest.raises(ValueError, match="copies of one table"):
        shared_levels([table, table**3 * 1.01])


def test_levels_of_powers_of_two_are_chosen_by_name(data, fit):
    levels = power_of_two_levels(15)
    np.testing.assert_array_equal(levels, -levels[::-1])
    np.testing.assert_array_equal(levels[8:], 3 * 2.0 ** np.arange(-6, 1))
    x, y = data(80)
    model = fit(DirectRegressor(**RAW, levels="power_of_two"), x, y)
    own = model.posterior_.weights.levels
    np.testing.assert_allclose(own, own[:, -1:] / levels[-1] * levels, rtol=1e-12)
    with pytest.raises(ValueError, match="levels must be one of 'even', 'power_of_two'"):
        DirectRegressor(**RAW, levels="odd").fit(x, y)
    with pytest.raises(ValueError, match="odd"):
        power_of_two_levels(8)
