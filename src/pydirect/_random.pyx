# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Sampling of categorical weights through NumPy's bit generators, without Python objects in the loop."""

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport uint8_t
from numpy.random cimport bitgen_t

import numpy as np


def sample_levels(bit_generator, const double[:, ::1] cumulative, uint8_t[:, ::1] out):
    """Draw level indices by inversion, one uniform a weight, rows of `out` one after another.

    Parameters
    ----------
    bit_generator : numpy.random.BitGenerator
    cumulative : ndarray of shape (n_weights, n_levels)
        Cumulative probabilities; the last column is 1 or more.
    out : ndarray of shape (n_samples, n_weights), uint8
    """
    cdef bitgen_t *generator = <bitgen_t *>PyCapsule_GetPointer(bit_generator.capsule, "BitGenerator")
    cdef Py_ssize_t n_samples = out.shape[0], n_weights = out.shape[1], n_levels = cumulative.shape[1]
    cdef Py_ssize_t i, j, k
    cdef double u
    cdef uint8_t level
    if cumulative.shape[0] != n_weights or not 1 <= n_levels <= 256:
        raise ValueError(f"cumulative must have shape ({n_weights}, 1 to 256), got {np.shape(cumulative)}")
    with bit_generator.lock, nogil:
        for i in range(n_samples):
            for j in range(n_weights):
                u = generator.next_double(generator.state)
                level = 0
                # Counting instead of branching: as many levels as lie wholly below u.
                for k in range(n_levels - 1):
                    level += cumulative[j, k] <= u
                out[i, j] = level
