"""Label codes: integers in order of appearance."""

import numpy as np

from pydirect.streams.labels import LabelCodes


def test_labels_are_coded_in_order_of_appearance():
    codes = LabelCodes()
    assert codes.codes(np.array(["b", "a", "b"])).ravel().tolist() == [1.0, 0.0, 1.0]
    found = codes.codes(np.array(["c", None, "a"], dtype=object)).ravel()
    np.testing.assert_array_equal(found, [2.0, np.nan, 0.0])
    assert codes.labels == ["a", "b", "c"]
    assert LabelCodes().codes(np.array([], dtype=object)).shape == (0, 1)
