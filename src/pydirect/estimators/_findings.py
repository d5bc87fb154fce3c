"""What a fit found in its inputs, in words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pydirect.features.basis import Basis
from pydirect.features.columns import Columns
from pydirect.features.kernel import SMOOTHNESS, KernelHyperparameters
from pydirect.features.search_record import HyperparameterSearch

MOST_NAMES = 6
HALVES = {0.5: "1/2", 1.5: "3/2", 2.5: "5/2"}


def words_of_inputs(basis: Basis, columns: Columns | None) -> list[str]:
    """Say which columns were encoded, which matter, and how smooth the function is; `columns` encode the table."""
    lines = [] if columns is None else words_of_columns(columns)
    if basis.hyperparameters is None:
        return lines
    names = column_names(basis, columns)
    if basis.search is not None:
        lines += words_of_search(basis.search, names)
    if columns is not None and len(names) == columns.n_encoded:  # the categories of a column share a length-scale
        own = columns.names or [f"column {j}" for j in range(columns.n_columns)]
        names = [names[k] if j < 0 else own[j] for k, j in enumerate(columns.groups)]
    return [*lines, words_of_kernel(basis, basis.hyperparameters, names)]


def column_names(basis: Basis, columns: Columns | None) -> list[str]:
    """Return the names of the encoded columns."""
    if columns is not None and columns.n_encoded == basis.n_features_in and columns.names is not None:
        return columns.names_out
    return [f"column {j}" for j in range(basis.n_features_in)] if basis.names is None else list(basis.names)


def words_of_columns(columns: Columns) -> list[str]:
    """Say which columns of a table are categories, and which lacked numbers."""
    names = [f"column {j}" for j in range(columns.n_columns)] if columns.names is None else list(columns.names)
    lines = []
    categories = [f"{names[j]} ({len(found)})" for j, found in enumerate(columns.categories) if found is not None]
    if categories:
        lines.append(f"Categories, one column of 0 and 1 each: {_listed(categories)}.")
    if columns.lacking:
        told = f"; that they are missing is told of {_listed([names[j] for j in columns.indicators])}"
        lines.append(
            f"Missing numbers of {_listed([names[j] for j in columns.lacking])} are what the other columns let expect"
            f"{told if columns.indicators else ''}."
        )
    if columns.numbering:
        which = _listed([names[j] for j in columns.numbering])
        lines.append(f"A different integer in every row: {which}. Leave out what only numbers the rows.")
    return lines


def words_of_search(search: HyperparameterSearch, names: Sequence[str]) -> list[str]:
    """Say what the screen of columns found, and whether searches on several subsets of the rows agree."""
    lines = []
    if search.scores.any():
        order = np.argsort(-search.scores, kind="stable")
        found = [names[j] for j in search.columns[order] if j in search.relevant]
        which = f"{len(found)} relevant: {_listed(found)}" if found else "none that stands out"
        lines.append(f"The screen of {len(search.columns)} columns found {which}.")
    if search.n_subsets > 1:
        apart = f"differ by {search.disagreement:.2g} nats a row; other seeds may find better ones"
        agree = "agree" if search.agreed else apart
        lines.append(f"Searches of hyperparameters on {search.n_subsets} subsets of the rows: the best two {agree}.")
    return lines


def words_of_kernel(basis: Basis, kernel: KernelHyperparameters, names: Sequence[str]) -> str:
    """Say how smooth the kernel is, why, and along which columns the function changes fastest."""
    inputs = basis.input_map
    n = inputs.n_standardised
    shortest = kernel.length_scales[:n].copy()
    if inputs.n_outputs > n:  # of the normal scores, in their standard deviations
        scored = np.isin(inputs.kept, inputs.scored)
        shortest[scored] = np.minimum(shortest[scored], kernel.length_scales[n:])
    found: dict[str, float] = {}
    for j in np.argsort(shortest, kind="stable"):
        found.setdefault(names[inputs.kept[j]], shortest[j])
    scales = ", ".join(f"{name} {scale:.2g}" for name, scale in list(found.items())[:MOST_NAMES])
    why = ""
    if basis.search is not None and basis.search.smoothness_values.size:
        values = basis.search.smoothness_values.max(axis=0)
        chosen = SMOOTHNESS.index(kernel.smoothness)
        others = np.delete(values, chosen)
        gain = values[chosen] - others[np.isfinite(others)].max(initial=-np.inf)
        if np.isfinite(gain) and gain > 0:
            why = f", {gain:.3g} nats before the next"
    of = f", the shortest of {len(found)}" if len(found) > MOST_NAMES else ""
    return (
        f"Kernel: Matérn of smoothness {HALVES[kernel.smoothness]}{why}; length-scales in standard deviations{of}: "
        f"{scales}."
    )


def words_of_constant_noise(untried: str | None) -> str:
    """Say that the noise has one variance, and who predicts another where none was compared, because of `untried`."""
    if untried is None:
        return "Noise: one variance for all rows; left-out rows speak for no other."
    return (
        f"Noise: one variance for all rows; others are not compared {untried}. If it varies, noise='varying' "
        "in the decorrelated basis or DVIRegressor has likelier predictions."
    )


def _listed(names: Sequence[str]) -> str:
    """Return names with commas, at most `MOST_NAMES` of them."""
    return ", ".join(names[:MOST_NAMES]) + (f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else "")
