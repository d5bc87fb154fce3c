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
from pydirect.features.kernel import PAIRS, SMOOTHNESS, SQUARED_EXPONENTIAL, KernelHyperparameters
from pydirect.features.search_record import HyperparameterSearch
from pydirect.fitted.regression import FittedRegressor
from pydirect.noise.local import SMALLEST_GAIN
from pydirect.tables.encoding import ColumnEncoding


class Summary(str):
    """What a fit found, line by line; notebooks show a table."""

    def _repr_html_(self) -> str:
        rows = ""
        for line in self.splitlines():
            name, colon, rest = line.partition(": ")
            cells = (name, rest) if colon and len(name) < 60 else ("", line)
            rows += "<tr>" + "".join(f"<td style='text-align:left'>{escape(cell)}</td>" for cell in cells) + "</tr>"
        return f"<table>{rows}</table>"


MOST_NAMES = 6
RADIAL = {nu: f"Matérn of smoothness {round(2 * nu)}/2" for nu in SMOOTHNESS} | {
    SQUARED_EXPONENTIAL: "squared exponential"
}

# What a scale says of the targets.
REASONS = {
    "log": "targets that vary by percentages",
    "sqrt": "targets whose variance grows like their mean",
    "cbrt": "targets that vary nearly by percentages",
    "logit": "targets between bounds",
    "asinh": "targets of heavy tails on both sides",
}


# --- parts of sentences


def counted(n: float, noun: str) -> str:
    """Say how many: "1 row", "2.5 rows"."""
    return f"{n:.6g} {noun}{'' if n == 1 else 's'}"


def _listed(names: Sequence[str]) -> str:
    """Return names with commas, at most `MOST_NAMES` of them."""
    return ", ".join(names[:MOST_NAMES]) + (f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else "")


def _named(names: Sequence[str] | None, n_columns: int) -> list[str]:
    """Return the names of columns, or their numbers."""
    return [f"column {j}" for j in range(n_columns)] if names is None else list(names)


def _said(*sentences: Any) -> list[str]:
    """Return the sentences whose conditions hold: what does not is false or empty."""
    return [sentence for sentence in sentences if sentence]


def column_names(basis: Basis, columns: ColumnEncoding | None) -> list[str]:
    """Return the names of the encoded columns."""
    if columns is not None and columns.n_encoded == basis.n_features_in and columns.names is not None:
        return columns.names_out
    return _named(basis.names, basis.n_features_in)


# --- inputs


def words_of_inputs(basis: Basis, columns: ColumnEncoding | None) -> list[str]:
    """Say which columns were encoded, which matter, and how smooth the function is; `columns` encode the table."""
    lines = [] if columns is None else words_of_columns(columns)
    if basis.hyperparameters is None:
        return lines + _said(basis.kernel and str(basis.kernel))
    names = column_names(basis, columns)
    if basis.search is not None:
        lines += words_of_search(basis.search, names)
    if columns is not None and len(names) == columns.n_encoded:  # the categories of a column share a length-scale
        own = _named(columns.names or None, columns.n_columns)
        names = [own[j] if 0 <= j < len(own) else names[k] for k, j in enumerate(columns.groups)]
    return [*lines, words_of_kernel(basis, basis.hyperparameters, names)]


def words_of_columns(columns: ColumnEncoding) -> list[str]:
    """Say which columns of a table are categories, and which lacked numbers."""
    names = _named(columns.names, columns.n_columns)
    categories = [f"{names[j]} ({len(found)})" for j, found in enumerate(columns.categories) if found]
    effects = _listed([f"{names[own.column]} ({len(own.categories)})" for own in columns.effects])
    lacking, told, numbering = (
        _listed([names[j] for j in own]) for own in (columns.lacking, columns.indicators, columns.numbering)
    )
    dates = [
        f"Dates: {names[own.column]} as time in {own.unit}{f', {_listed(own.seasons)}' if own.seasons else ''}."
        for own in columns.calendars
    ]
    told = told and f"; that they are missing is told of {told}"
    return _said(
        categories and f"Categories, one column of 0 and 1 each: {_listed(categories)}.",
        effects and f"Effects of categories: {effects}.",
        *dates,
        lacking and f"Missing numbers of {lacking} are imputed from the other columns{told}.",
        numbering and f"A different integer in every row: {numbering}. Leave out what only numbers the rows.",
    )


def words_of_search(search: HyperparameterSearch, names: Sequence[str]) -> list[str]:
    """Say what the screen of columns found, and which evidence the kernel is from."""
    lines = []
    if search.scores.any():
        order = np.argsort(-search.scores, kind="stable")
        found = [names[j] for j in search.columns[order] if j in search.relevant]
        which = f"{len(found)} relevant: {_listed(found)}" if found else "none that stands out"
        lines.append(f"The screen of {len(search.columns)} columns found {which}.")
    starts, values = search.nearest_starts, search.nearest_values
    if not starts:
        starts, values = search.starts, search.start_values
    best, *others = np.sort(values)[::-1]
    if others:
        name, gain = starts[int(values.argmax())], best - others[0]
        lines.append(f"Of {len(starts)} starts of the search “{name}” was best, {gain:.3g} nats before the next.")
    return lines


def words_of_kernel(basis: Basis, kernel: KernelHyperparameters, names: Sequence[str]) -> str:
    """Say how smooth the kernel is, why, and along which columns the function changes fastest."""
    inputs, search, why = basis.input_map, basis.search, ""
    scales, of = _words_of_scales(inputs, kernel.length_scales, names)
    if search is not None and search.smoothness_values.size:
        values, chosen = search.smoothness_values, (*SMOOTHNESS, SQUARED_EXPONENTIAL).index(kernel.smoothness)
        if chosen < len(values):  # few rows may not have tried what more have chosen
            others = np.delete(values, chosen)
            gain = values[chosen] - others[np.isfinite(others)].max(initial=-np.inf)
            why = f", {gain:.3g} nats before the next" if np.isfinite(gain) and gain > 0 else ""
    smooth = f"Kernel: {RADIAL[kernel.smoothness]}{why}"
    told = f"{smooth}; length-scales in standard deviations{of}: {scales}."
    if kernel.product_amplitude > 0:
        with np.errstate(divide="ignore"):
            scales, of = _words_of_scales(inputs, 1 / kernel.product_rates, names)
        pairs = kernel.product_order == PAIRS
        gain = None if search is None else search.pairs_gain if pairs else search.product_gain
        by = "" if gain is None else f", which gains {gain:.3g} nats"
        rough = "rough part changes along single columns, as steps do"
        what = "sum of functions of two columns each" if pairs else rough
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


# --- models


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
    fitted = model.model_
    if fitted.effective_rows < 2:
        noise = ["Standard deviations mean nothing: a single row does not tell how far targets vary."]
    elif fitted.noise is not None:
        noise = fitted.noise.words()
    else:
        noise = _said(model.noise == "auto" and fitted.local is None and words_of_constant_noise(fitted.untried))
    return lines_of_model(model) + _said(
        *noise,
        fitted.local_gain is not None and words_of_local(fitted),
        fitted.units.active is not None and words_of_scale(fitted),
    )


def lines_of_stream(model: Any) -> list[str]:
    """Where a stream stands."""
    stream = model.model_
    basis, active, moved = stream.basis, stream.units.active, stream.level_moved_at
    rows = f"{counted(stream.n_seen, 'row')} seen, {counted(stream.n_samples, 'row')} of them count"
    first = f"{type(model).__name__}: {rows}, {counted(model.n_features_in_, 'column')}."
    if basis is None:
        return [first, "A constant: there are too few rows for more."]
    return _said(
        first,
        f"{basis.n_weights} {basis.map.kind} basis functions.",
        active is not None and f"y is modelled as {active}.",
        moved and f"The level of y last moved after {moved[-1]} rows; earlier rows moved along.",
        stream.score_weight
        and f"Mean log density of the latest rows, before each was learned: {stream.log_score:.3f} nats.",
        *words_of_inputs(basis, stream.columns),
    )


# --- what fits found


def words_of_posterior(posterior: Any) -> str:
    """Say how inference ended, and how many weights are zero."""
    if isinstance(posterior, SequentialPosterior):
        return posterior.summary()
    state = "converged" if posterior.converged else "did not converge"
    zeros = getattr(posterior, "sparsity", 0.0)
    kind = f"; {zeros:.0%} of the weights are zero in a draw" if zeros else ""
    return f"Inference {state} after {counted(posterior.n_iter, 'iteration')}{kind}."


def words_of_constant_noise(untried: str | None) -> str:
    """Say that the noise has one variance, and who predicts another where none was compared, because of `untried`."""
    if untried is None:
        return "Noise: one variance for all rows; leave-one-out scores favour no other."
    return (
        f"Noise: one variance for all rows; others are not compared {untried}. If it varies, noise='varying' "
        "with posterior='gaussian' or DVIRegressor has likelier predictions."
    )


def words_of_local(fitted: FittedRegressor) -> str:
    """Say what a local process was worth."""
    process, gain = fitted.local, fitted.local_gain
    assert gain is not None
    if process is not None:
        scale = "a scale for each place" if (process.pooling < 1).any() else "one scale"
        gained = f"leave-one-out scores gained {gain:.3g} nats a row"
        return f"Local process on the residuals of {process.k} neighbours, with {scale}: {gained}."
    change = f"{'gained' if gain > 0 else 'lost'} {abs(gain):.3g} nats a row by it"
    if gain > SMALLEST_GAIN:
        change += ", with larger errors" if fitted.noise is None else ", less than by noise of their own"
    return f"Local process: off; leave-one-out scores would have {change}."


def words_of_scale(fitted: FittedRegressor) -> str:
    """Say which scale of the targets is modelled, why, and what it is worth."""
    units, spread = fitted.units, fitted.units.spread
    assert units.active is not None
    why = ", ".join(dict.fromkeys(REASONS[name] for name in units.active.names if name in REASONS))
    line = f"It models {units.active}, and predicts in the units of y{why and f': {why}'}"
    if units.gain is not None:
        gains = ", ".join(f"{gain:.2f}" for gain in units.gain)
        line += f". Leave-one-out scores chose that, by {gains} nats a row over y itself; target_transform=None keeps y"
    if spread is not None and (spread == 0).any():
        line += ". Means are medians, which are closer to rows left out"
    if units.factor is not None and (units.factor != 1).any():
        factors = ", ".join(f"{factor:.3g}" for factor in units.factor)
        line += f". Means are {factors} times as far from the lowest value, to be as large as y on average"
    return line + "."
