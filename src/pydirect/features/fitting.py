"""From rows to a `Basis`: input map, kernel search, landmarks or frequencies."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pydirect import _core
from pydirect._threads import resolve_n_threads
from pydirect._validation import FloatArray, as_float_array
from pydirect.features.basis import Basis
from pydirect.features.inputs import LARGEST, InputMap
from pydirect.features.kernel import KernelHyperparameters
from pydirect.features.maps import (
    AnyMap,
    LinearFeatures,
    NystroemFeatures,
    PolynomialFeatures,
    PrecomputedFeatures,
    TransformerFeatures,
    random_fourier_features,
)
from pydirect.features.own_kernel import search_own_kernel
from pydirect.features.rows import TrainingRows
from pydirect.features.search import KernelRows
from pydirect.features.search_record import HyperparameterSearch
from pydirect.tables.encoding import ColumnEncoding

KERNEL_MAPS, GIVEN_MAPS, OWN_KERNEL = ("nystroem", "fourier"), ("precomputed", "transformer"), "own_kernel"
ROUNDING = 1e-9  # relative, of sums over rows
# Rows from which every one of the first landmarks is chosen, and the share of the noise variance that hides the rest.
CANDIDATES, HIDDEN = 2, 1e-3
FIRST_SIZES = (128, 384)
KernelSearch = Callable[[KernelRows, np.random.Generator], tuple[KernelHyperparameters, HyperparameterSearch]]


@dataclass(frozen=True)
class FeaturePlan:
    """What feature map is asked for: its kind and the options of kinds.

    ``first_size`` is the number of landmarks at first, where more are added later, and ``spreads_first`` whether they
    are spread out; ``parameters`` is what the map's later uses are checked against.
    """

    kind: str
    n_functions: int = 2000
    degree: int = 2
    rank_inputs: bool | None = True
    length_scale: float | ArrayLike | None = None
    max_search_rows: int = 1000
    transformer: Any = None
    own_kernel: Any = None
    first_size: int | None = None
    spreads_first: bool = False
    parameters: Mapping[str, Hashable] = field(default_factory=dict)

    @property
    def has_kernel(self) -> bool:
        return self.kind in KERNEL_MAPS

    @property
    def learns_kernel(self) -> bool:
        return self.has_kernel and self.length_scale is None

    @property
    def takes_tables(self) -> bool:
        return self.kind not in GIVEN_MAPS

    @property
    def sizes(self) -> list[int]:
        """Numbers of landmarks that are tried one after another where more are added while labels become likelier."""
        return [size for size in FIRST_SIZES if size < self.n_functions] + [self.n_functions]

    def growing(self) -> FeaturePlan:
        """Begin with the first of the sizes, where the kernel is learned."""
        return replace(self, first_size=self.sizes[0]) if self.learns_kernel else self


def fit_basis(
    plan: FeaturePlan,
    rows: TrainingRows,
    columns: ColumnEncoding,
    search: KernelSearch,
    rng: np.random.Generator,
    *,
    names: tuple[str, ...] | None = None,
    target_scale: FloatArray | None = None,
    earlier: Basis | None = None,
) -> Basis:
    """Fit a feature map to encoded rows; the kernel of `earlier` is taken over where its inputs are the same."""
    record: dict[str, Any] = {"names": names, "columns": columns, "parameters": plan.parameters}
    if plan.kind in (*GIVEN_MAPS, OWN_KERNEL):
        record |= {"target_scale": target_scale} if plan.kind == OWN_KERNEL else {}
        return Basis(InputMap.identity(rows.x.shape[1]), _map_of_columns(plan, rows, target_scale, rng), **record)
    # Every linear feature has variance one, as documented: there, rare categories drown nothing.
    together = None if plan.kind == "linear" else columns.groups
    rank = plan.rank_inputs if plan.learns_kernel else False
    # Axes of places have no meaning, beyond the last date all scores are the same, and 0 and 1 have no others.
    unscored = np.flatnonzero(columns.groups >= 0)
    input_map = InputMap.fit(rows.x, rows.weight, rank=rank, groups=together, unscored=unscored)
    d = input_map.n_outputs
    if plan.kind == "linear" or d == 0:
        return Basis(input_map, LinearFeatures(d), **record)
    if plan.kind == "polynomial":
        return Basis(input_map, PolynomialFeatures(d, plan.degree), **record)
    inputs = input_map.transform(rows.x)
    if plan.length_scale is not None:
        kernel = given_kernel(plan.length_scale, columns, input_map)
    else:
        found = None if earlier is None else earlier.kernel_for(columns, input_map)
        if found is None:
            index, counts = rows.distinct
            tied = input_map.tied(columns.groups)
            axes = input_map.axes if plan.kind == "nystroem" else np.arange(0)  # random frequencies would be too few
            distinct = inputs[index], rows.y[index], counts, input_map.n_standardised
            options = tied, axes, input_map.forms
            found = search(KernelRows(*distinct, *options, precision=rows.precisions[index]), rng)
        kernel, tried = found
        record |= {"search": replace(tried, columns=input_map.kept), "target_scale": target_scale}
    if plan.kind == "fourier":
        # Of columns that tell nothing of y the last bit of a sum must not choose the sign.
        most = np.linalg.norm(inputs, axis=0) * np.linalg.norm(rows.y[:, 0])
        signs = np.where(inputs.T @ rows.y[:, 0] < -ROUNDING * most, -1.0, 1.0)
        drawn = random_fourier_features(kernel, max(1, plan.n_functions // 2), rng, signs=signs)
        return Basis(input_map, drawn, kernel, **record)
    size = plan.first_size or plan.n_functions
    landmarks = choose_landmarks(inputs, rows, rng, CANDIDATES * size if plan.spreads_first else size)
    if plan.spreads_first:
        landmarks = spread_landmarks(landmarks, kernel, size)
    return Basis(input_map, NystroemFeatures.at(landmarks, kernel), kernel, **record)


def spread_landmarks(candidates: FloatArray, kernel: KernelHyperparameters, size: int) -> FloatArray:
    """Return the candidates, `size` at most, that miss least of all of them, each the one of which most is missed.

    The order is that of a Cholesky factorisation with pivots, so that leading ones are those of fewer; it ends where
    nothing is missed that noise does not hide.
    """
    least, n_threads = HIDDEN * kernel.noise_variance, resolve_n_threads()
    order = _core.largest_pivots(kernel.covariance(candidates, candidates, n_threads), size, least, n_threads)
    return np.ascontiguousarray(candidates[order])


def choose_landmarks(inputs: FloatArray, rows: TrainingRows, rng: np.random.Generator, size: int) -> FloatArray:
    """Choose distinct rows of inputs as landmarks, (at most `size`, n_inputs)."""
    used = inputs if rows.is_plain else inputs[rows.distinct[0]]
    if len(used) <= max(4 * size, 4000):  # repeated landmarks add nothing
        used = np.unique(used, axis=0)
    if len(used) > size:
        used = used[np.sort(rng.choice(len(used), size, replace=False))]
    return np.ascontiguousarray(used)


def given_kernel(
    length_scale: float | ArrayLike, columns: ColumnEncoding, input_map: InputMap
) -> KernelHyperparameters:
    """A smooth kernel with length-scales in units of the columns of X."""
    scales = np.full(columns.n_columns, length_scale) if np.ndim(length_scale) == 0 else length_scale
    scales = as_float_array(scales, "length_scale", (columns.n_columns,))[columns.origins]
    if (scales <= 0).any():
        raise ValueError(f"length_scale must be positive, got {scales.min()}")
    # Distances stay finite, and numbers such as files hold.
    relative = np.clip(scales / input_map.scale, 1e-40, 1e100)[input_map.kept]
    return KernelHyperparameters(0.1, 1.0, relative, 0.0, 1.0, 0.3, input_map.n_standardised)


def _map_of_columns(
    plan: FeaturePlan, rows: TrainingRows, target_scale: FloatArray | None, rng: np.random.Generator
) -> AnyMap:
    """A map of the columns in their own units: a custom kernel's functions, or one that is given."""
    x = rows.x
    if plan.kind == OWN_KERNEL:
        scale, index = np.ones(rows.y.shape[1]) if target_scale is None else target_scale, rows.distinct[0]
        kernel = search_own_kernel(plan.own_kernel, x[index], rows.y[index], scale, rng, plan.max_search_rows)
        return NystroemFeatures.at(choose_landmarks(x, rows, rng, plan.n_functions), kernel)
    if (most := np.abs(x).max()) > LARGEST:
        raise ValueError(f"X must be at most {LARGEST:g} in magnitude for {plan.kind} features, got {most:g}")
    if plan.kind == "precomputed":
        return PrecomputedFeatures(x.shape[1])
    transformer = plan.transformer().fit(x)  # a clone
    return TransformerFeatures(transformer, x.shape[1], transformer.transform(x[:1]).shape[1])
