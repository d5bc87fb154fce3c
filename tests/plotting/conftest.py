"""A place to draw for all tests of pictures."""

import matplotlib
import pytest


@pytest.fixture(autouse=True)
def plt():
    """Pyplot on a backend without a screen; closes the figures and checks that no display changed the settings."""
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    before = dict(matplotlib.rcParams)
    yield plt
    plt.close("all")
    assert dict(matplotlib.rcParams) == before
