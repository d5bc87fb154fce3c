"""Shapley values: what each column contributed to a number that depends on all of them.

A coalition T of columns has the value v(T) = f(x_T, z_rest): a row x with the other columns from a background row z.
The Shapley value of column j is the mean of v(T ∪ j) − v(T) over all orders in which columns join (Shapley 1953; for
predictions Štrumbelj & Kononenko 2014), averaged over z: by sums over all coalitions, by random orders with standard
errors, or, for sums of products of functions of single columns, in closed form. With a_k of x and b_k of z it is (Owen
1972)

    (a_j − b_j) ∫₀¹ ∏_{k≠j} (qa_k + (1 − q)b_k) dq,

a polynomial, which Gauss-Legendre quadrature integrates exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray
from pydirect.features.products import ProductMap

Factors = NDArray[Any]  # float64 or complex128
Evaluate = Callable[[FloatArray], FloatArray]
# Factors of pairs of terms that are stored at a time: those of one player stay in the cache.
BLOCK_NUMBERS = 2**17
# Coalitions that are evaluated at a time.
BLOCK_COALITIONS = 1024


# --- products


def shares_of_products(of_row: Factors, of_background: Factors, degree: int) -> Factors:
    """Return the Shapley values of products over players, (n_players, n_products)."""
    nodes, weights = np.polynomial.legendre.leggauss(max(1, (degree + 1) // 2))
    total = np.zeros_like(of_row)
    for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
        mixed = node * of_row + (1 - node) * of_background
        total += weight * _products_of_others(mixed)
    return (of_row - of_background) * total


def _products_of_others(factors: Factors) -> Factors:
    """Return the products of all factors but the own one, (n_players, n_products); any of them may be zero."""
    before, after = np.ones_like(factors), np.ones_like(factors)
    np.cumprod(factors[:-1], axis=0, out=before[1:])
    np.cumprod(factors[:0:-1], axis=0, out=after[-2::-1])
    return before * after


def shares_of_functions(
    products: ProductMap, x: FloatArray, z: FloatArray, groups: NDArray[np.intp], n_groups: int
) -> FloatArray:
    """Return the Shapley values of all basis functions, (n_groups, n_weights): those of f = φᵀw are products with w."""
    shares = shares_of_products(
        products.factors(x, groups, n_groups), products.factors(z, groups, n_groups), products.degree(groups)
    )
    return np.ascontiguousarray((shares @ products.matrix).real)


def shares_of_variance(
    products: ProductMap, covariance: FloatArray, x: FloatArray, z: FloatArray, groups: NDArray[np.intp], n_groups: int
) -> FloatArray:
    """Return the Shapley values of the variance of f, φᵀSφ, (n_groups,): products of two terms are products again.

    With Φ = Re uT it is ½ Re(uᵀTSTᴴū + uᵀTSTᵀu), and uᵀTSTᵀu of real terms. Where every basis function is one of a
    single player, the sums over pairs are (φ_j(x) − φ_j(z))ᵀS(φ(x) + φ(z)).
    """
    degree = products.degree(groups)
    a, b = (products.factors(row, groups, n_groups) for row in (x, z))
    if degree <= 1:
        both = ((a.prod(axis=0) + b.prod(axis=0)) @ products.matrix).real
        return np.asarray(shares_of_functions(products, x, z, groups, n_groups) @ (covariance @ both))
    half = products.matrix @ covariance
    if np.isrealobj(a):
        return _shares_of_pairs(half @ products.matrix.T, a, b, a, b, degree)
    total = _shares_of_pairs(half @ products.matrix.conj().T, a, b, a.conj(), b.conj(), degree)
    return 0.5 * (total + _shares_of_pairs(half @ products.matrix.T, a, b, a, b, degree))


def _shares_of_pairs(
    coefficients: Factors, a: Factors, b: Factors, other_a: Factors, other_b: Factors, degree: int
) -> FloatArray:
    """Return the real part of Σ C_mn ·(Shapley value of the product of terms m and n), (n_players,).

    C is Hermitian or symmetric, with terms to match: both orders of a pair have the same real part.
    """
    n_players, n_terms = a.shape
    total = np.zeros(n_players)
    size = max(1, BLOCK_NUMBERS // (n_players * n_terms))
    for begin in range(0, n_terms, size):
        rows, columns = np.tril_indices(min(size, n_terms - begin), begin, n_terms)
        rows += begin
        own = coefficients[rows, columns] * np.where(rows == columns, 1.0, 2.0)
        pairs = (a[:, rows] * other_a[:, columns], b[:, rows] * other_b[:, columns])
        total += (shares_of_products(*pairs, min(2 * degree, n_players)) @ own).real
    return total


# --- any function


def mixed_rows(x: FloatArray, z: FloatArray, joined: NDArray[np.bool_], groups: NDArray[np.intp]) -> FloatArray:
    """Return rows with the columns of x whose players have joined, and of z elsewhere, (n_coalitions, n_columns).

    `joined`, (n_coalitions, n_players); `groups`, (n_columns,): the player of each column, −1 for none.
    """
    return np.where(joined[:, groups] & (groups >= 0), x, z)


def shares_by_enumeration(
    evaluate: Evaluate, x: FloatArray, background: FloatArray, groups: NDArray[np.intp], n_players: int
) -> FloatArray:
    """Return Shapley values by sums over all coalitions, (n_players, n_values)."""
    joined = (np.arange(2**n_players)[:, None] >> np.arange(n_players)) % 2 == 1
    size = joined.sum(axis=1)
    with_own = [1 / (n_players * comb(n_players - 1, max(s - 1, 0))) for s in range(n_players + 1)]
    without = [1 / (n_players * comb(n_players - 1, min(s, n_players - 1))) for s in range(n_players + 1)]
    weights = np.where(joined, np.take(with_own, size)[:, None], -np.take(without, size)[:, None])
    total = 0.0
    for begin in range(0, len(joined), BLOCK_COALITIONS):
        block = slice(begin, begin + BLOCK_COALITIONS)
        for z in background:
            total = total + weights[block].T @ evaluate(mixed_rows(x, z, joined[block], groups))
    return np.asarray(total) / len(background)


def shares_by_permutations(
    evaluate: Evaluate,
    x: FloatArray,
    background: FloatArray,
    groups: NDArray[np.intp],
    n_players: int,
    n_each: int,
    rng: np.random.Generator,
) -> tuple[FloatArray, FloatArray]:
    """Estimate Shapley values from random orders, each also backwards, and their standard errors."""
    shares, variances = 0.0, 0.0
    for z in background:
        orders = np.stack([rng.permutation(n_players) for _ in range(n_each)])
        each = _shares_in_orders(evaluate, x, z, groups, orders)
        shares = shares + each.mean(axis=0)
        variances = variances + each.var(axis=0, ddof=1) / n_each
    return np.asarray(shares) / len(background), np.sqrt(variances) / len(background)


def _shares_in_orders(
    evaluate: Evaluate, x: FloatArray, z: FloatArray, groups: NDArray[np.intp], orders: NDArray[np.intp]
) -> FloatArray:
    """Return what players add in orders and their reverses, on average, (n_orders, n_players, n_values)."""
    n_orders, n = orders.shape
    place = np.argsort(orders, axis=1)[:, None, :]
    steps = np.arange(n + 1)[:, None]
    joined = np.concatenate([place < steps, (n - 1 - place < steps)[:, 1:-1]], axis=1)
    values = evaluate(mixed_rows(x, z, joined.reshape(-1, n), groups)).reshape(n_orders, 2 * n, -1)
    there = np.diff(values[:, : n + 1], axis=1)
    back = np.diff(np.concatenate([values[:, :1], values[:, n + 1 :], values[:, n : n + 1]], axis=1), axis=1)
    place = place[:, 0, :, None]
    return 0.5 * (np.take_along_axis(there, place, axis=1) + np.take_along_axis(back, n - 1 - place, axis=1))
