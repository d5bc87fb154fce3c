"""Sampling of categorical weights through NumPy's bit generators, without Python objects in the loop."""

import numpy as np
from numpy.typing import NDArray

def sample_levels(
    bit_generator: np.random.BitGenerator, cumulative: NDArray[np.float64], out: NDArray[np.uint8]
) -> None: ...
