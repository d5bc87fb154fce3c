"""What a fit found in its inputs, in words."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from pydirect._validation import FloatArray
from pydirect.direct.sequential_posterior import SequentialPosterior
from pydirect.features.basis import Basis
from pydirect.features.inputs import InputMap
from pydirect.features.kernel import PAIRS, SMOOTHNESS, KernelHyperparameters
from pydirect.features.search_record import HyperparameterSearch
from pydirect.fitted.regression import FittedRegressor
from pydirect.noise.local import SMALLEST_GAIN
from pydirect.statistics.gaussian import sums_are_of_kernel
from pydirect.tables.encoding import ColumnEncoding


class Summary(str):
    """What a fit found, line by line; notebooks show a table."""

    def _repr_html_(self) -> str:
        rows = []
        for line in self.splitlines():
            head, colon, rest = line.partition(": ")
            cells = (head, rest) if colon and len(head) < 60 else ("", line)
            rows.append(
                "<tr>" + "".join(f"<td style='text-align:left'>{escape(cell)}</td>" for cell in cells) + "</tr>"
            )
        return f"<table>{''.join(rows)}</table>"


MOST_NAMES = 6
HALVES = {0.5: "1/2", 1.5: "3/2", 2.5: "5/2"}

# What a scale says of the targets.
REASONS = {
    "log": "targets that vary by percentages",
    "sqrt": "targets whose variance grows like their mean",
    "cbrt": "targets that vary nearly by percentages",
    "logit": "targets between bounds",
    "asinh": "targets of heavy tails on both sides",
}


def words_of_inputs(basis: Basis, columns: ColumnEncoding | None) -> list[str]:
    """Say which columns were encoded, which matter, and how smooth the function is; `columns` encode the table."""
    lines = [] if columns is None else words_of_columns(columns)
    if basis.hyperparameters is None:
        return [*lines, *([] if basis.kernel is None else [str(basis.kernel)])]
    names = column_names(basis, columns)
    if basis.search is not None:
        lines += words_of_search(basis.search, names)
    if columns is not None and len(names) == columns.n_encoded:  # the categories of a column share a length-scale
        own = columns.names or [f"column {j}" for j in range(columns.n_columns)]
        names = [own[j] if 0 <= j < len(own) else names[k] for k, j in enumerate(columns.groups)]
    return [*lines, words_of_kernel(basis, basis.hyperparameters, names)]


def column_names(basis: Basis, columns: ColumnEncoding | None) -> list[str]:
    """Return the names of the encoded columns."""
    if columns is not None and columns.n_encoded == basis.n_features_in and columns.names is not None:
        return columns.names_out
    return [f"column {j}" for j in range(basis.n_features_in)] if basis.names is None else list(basis.names)


def words_of_columns(columns: ColumnEncoding) -> list[str]:
    """Say which columns of a table are categories, and which lacked numbers."""
    names = [f"column {j}" for j in range(columns.n_columns)] if columns.names is None else list(columns.names)
    lines = []
    categories = [f"{names[j]} ({len(found)})" for j, found in enumerate(columns.categories) if found is not None]
    if categories:
        lines.append(f"Categories, one column of 0 and 1 each: {_listed(categories)}.")
    for calendar in columns.calendars:
        seasons = f", {_listed(calendar.seasons)}" if calendar.seasons else ""
        lines.append(f"Dates: {names[calendar.column]} as time in {calendar.unit}{seasons}.")
    if columns.lacking:
        told = f"; that they are missing is told of {_listed([names[j] for j in columns.indicators])}"
        lines.append(
            f"Missing numbers of {_listed([names[j] for j in columns.lacking])} are imputed from the other columns"
            f"{told if columns.indicators else ''}."
        )
    if columns.numbering:
        which = _listed([names[j] for j in columns.numbering])
        lines.append(f"A different integer in every row: {which}. Leave out what only numbers the rows.")
    return lines


def words_of_search(search: HyperparameterSearch, names: Sequence[str]) -> list[str]:
    """Say what the screen of columns found, and which evidence the kernel is from."""
    lines = []
    if search.scores.any():
        order = np.argsort(-search.scores, kind="stable")
        found = [names[j] for j in search.columns[order] if j in search.relevant]
        which = f"{len(found)} relevant: {_listed(found)}" if found else "none that stands out"
        lines.append(f"The screen of {len(search.columns)} columns found {which}.")
    starts, values = (
        (search.nearest_starts, search.nearest_values)
        if search.nearest_starts
        else (search.starts, search.start_values)
    )
    best, *others = np.sort(values)[::-1]
    if others:
        name = starts[int(values.argmax())]
        lines.append(
            f"Of {len(starts)} starts of the search “{name}” was best, {best - others[0]:.3g} nats before the next."
        )
    return lines


def words_of_kernel(basis: Basis, kernel: KernelHyperparameters, names: Sequence[str]) -> str:
    """Say how smooth the kernel is, why, and along which columns the function changes fastest."""
    inputs = basis.input_map
    scales, of = _words_of_scales(inputs, kernel.length_scales, names)
    why = ""
    if basis.search is not None and basis.search.smoothness_values.size:
        values = basis.search.smoothness_values
        chosen = SMOOTHNESS.index(kernel.smoothness)
        others = np.delete(values, chosen)
        gain = values[chosen] - others[np.isfinite(others)].max(initial=-np.inf)
        if np.isfinite(gain) and gain > 0:
            why = f", {gain:.3g} nats before the next"
    told = (
        f"Kernel: Matérn of smoothness {HALVES[kernel.smoothness]}{why}; length-scales in standard deviations{of}: "
        f"{scales}."
    )
    if kernel.product_amplitude > 0:
        with np.errstate(divide="ignore"):
            scales, of = _words_of_scales(inputs, 1 / kernel.product_rates, names)
        pairs = kernel.product_order == PAIRS
        gain = None if basis.search is None else basis.search.pairs_gain if pairs else basis.search.product_gain
        by = "" if gain is None else f", which gains {gain:.3g} nats"
        what = "rough part changes along single columns, as steps do"
        what = "sum of functions of two columns each" if pairs else what
        told += f" A {what}{by}: {kernel.product_amplitude:.2g} of the variance of y; length-scales{of}: {scales}."
    return told


def _words_of_scales(inputs: InputMap, length_scales: FloatArray, names: Sequence[str]) -> tuple[str, str]:
    """Return the shortest length-scales by column, of the value or its normal score, and of how many they are."""
    n = inputs.n_standardised
    shortest = length_scales[:n].copy()
    if inputs.n_outputs > n:  # of the normal scores, in their standard deviations
        scored = np.isin(inputs.kept, inputs.scored)
        shortest[scored] = np.minimum(shortest[scored], length_scales[n:])
    found: dict[str, float] = {}
    for j in np.argsort(shortest, kind="stable"):
        found.setdefault(names[inputs.kept[j]], shortest[j])
    scales = ", ".join(f"{name} {scale:.2g}" for name, scale in list(found.items())[:MOST_NAMES])
    return scales, f", the shortest of {len(found)}" if len(found) > MOST_NAMES else ""


def words_of_constant_noise(untried: str | None) -> str:
    """Say that the noise has one variance, and who predicts another where none was compared, because of `untried`."""
    if untried is None:
        return "Noise: one variance for all rows; leave-one-out scores favour no other."
    return (
        f"Noise: one variance for all rows; others are not compared {untried}. If it varies, noise='varying' "
        "with posterior='gaussian' or DVIRegressor has likelier predictions."
    )


def _listed(names: Sequence[str]) -> str:
    """Return names with commas, at most `MOST_NAMES` of them."""
    return ", ".join(names[:MOST_NAMES]) + (f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else "")


def counted(n: float, noun: str) -> str:
    """Say how many: "1 row", "2.5 rows"."""
    return f"{n:.6g} {noun}{'' if n == 1 else 's'}"


def lines_of_model(model: Any) -> list[str]:
    """What all models say: size, inference and, of basis functions, columns, search and kernel."""
    basis, posteriors = getattr(model.model_, "basis", None), model.posteriors_
    on = "" if basis is None else f" on {basis.n_weights} {basis.map.kind} basis functions"
    rows = f"{counted(model.total_weight_, 'row')}, {counted(model.n_features_in_, 'column')}"
    elbo = f": ELBO {model.elbo_:.2f} nats" if posteriors else ""
    words = [words_of_posterior(posterior) for posterior in posteriors]
    words = words[:1] if len(set(words)) == 1 else [f"Output {k}: {own}" for k, own in enumerate(words)]
    lines = [f"{type(model).__name__}{on}, fitted to {rows}{elbo}.", *words]
    return lines if basis is None else lines + words_of_inputs(basis, model.columns_)


def lines_of_regressor(model: Any) -> list[str]:
    """Everything that a regression found."""
    lines, fitted = lines_of_model(model), model.model_
    if (
        sums_are_of_kernel(model.features_, model._plan().block_dtype)
        and model.total_weight_ >= model.features_.n_weights
    ):
        lines.append("Sums over rows were of kernel functions, whitened once: rounding is small beside the noise.")
    if fitted.effective_rows < 2:
        lines.append("Standard deviations mean nothing: a single row does not tell how far targets vary.")
    elif fitted.noise is not None:
        lines += fitted.noise.words()
    elif model.noise == "auto" and fitted.local is None:
        lines.append(words_of_constant_noise(fitted.untried))
    if fitted.local_gain is not None:
        lines.append(words_of_local(fitted))
    if fitted.units.active is not None:
        lines.append(words_of_scale(fitted))
    return lines


def words_of_scale(fitted: FittedRegressor) -> str:
    """Say which scale of the targets is modelled, why, and what it is worth."""
    units = fitted.units
    assert units.active is not None
    why = dict.fromkeys(REASONS[name] for name in units.active.names if name in REASONS)
    line = f"It models {units.active}, and predicts in the units of y"
    if why:
        line += f": {', '.join(why)}"
    if units.gain is not None:
        gains = ", ".join(f"{gain:.2f}" for gain in units.gain)
        line += f". Leave-one-out scores chose that, by {gains} nats a row over y itself; target_transform=None keeps y"
    means = () if units.spread is None else units.spread[units.spread < 1]
    if len(means):
        line += ". Means are drawn towards medians, which are closer to rows left out"
    return line + "."


def words_of_local(fitted: FittedRegressor) -> str:
    """Say what a local process was worth."""
    process, gain = fitted.local, fitted.local_gain
    assert gain is not None
    if process is None:
        change = f"{'gained' if gain > 0 else 'lost'} {abs(gain):.3g} nats a row by it"
        if gain > SMALLEST_GAIN:
            change += ", with larger errors" if fitted.noise is None else ", less than by noise of their own"
        return f"Local process: off; leave-one-out scores would have {change}."
    scale = "a scale for each place" if (process.pooling < 1).any() else "one scale"
    gained = f"leave-one-out scores gained {gain:.3g} nats a row"
    return f"Local process on the residuals of {process.k} neighbours, with {scale}: {gained}."


def words_of_posterior(posterior: Any) -> str:
    """Say how inference ended, and how many weights are zero."""
    if isinstance(posterior, SequentialPosterior):
        return posterior.summary()
    state = "converged" if posterior.converged else "did not converge"
    zeros = getattr(posterior, "sparsity", 0.0)
    kind = f"; {zeros:.0%} of the weights are zero in a draw" if zeros else ""
    return f"Inference {state} after {counted(posterior.n_iter, 'iteration')}{kind}."


def lines_of_stream(model: Any) -> list[str]:
    """Where a stream stands."""
    stream = model.model_
    lines = [
        f"{type(model).__name__}: {counted(stream.n_seen, 'row')} seen, {counted(stream.n_samples, 'row')} of them "
        f"count, {counted(model.n_features_in_, 'column')}."
    ]
    if stream.basis is None:
        return [*lines, "A constant: there are too few rows for more."]
    lines.append(f"{stream.basis.n_weights} {stream.basis.map.kind} basis functions.")
    if stream.units.active is not None:
        lines.append(f"y is modelled as {stream.units.active}.")
    if stream.level_moved_at:
        lines.append(f"The level of y last moved after {stream.level_moved_at[-1]} rows; earlier rows moved along.")
    if stream.score_weight:
        lines.append(f"Mean log density of the latest rows, before each was learned: {stream.log_score:.3f} nats.")
    return lines + words_of_inputs(stream.basis, stream.columns)
