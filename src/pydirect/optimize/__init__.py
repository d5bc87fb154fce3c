"""Optimisers: ascent of quadratic problems, L-BFGS and Adam; they know no likelihood."""
