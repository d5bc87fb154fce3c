"""Kronecker sums written out: what their algebra is compared with."""

from functools import reduce

import numpy as np


def expanded(sums):
    """All entries of a `KroneckerSum`, (n_data, n_entries), the last variable varying fastest."""
    out = np.zeros((sums.n_data, sums.n_entries))
    for t, coefficients in enumerate(sums.coefficients):
        factors = [sums.factor(t, p) for p in range(sums.n_positions)]
        out += np.ldexp(np.multiply.outer(coefficients, reduce(np.kron, factors, np.ones(1))), sums.exponent[t])
    return out
