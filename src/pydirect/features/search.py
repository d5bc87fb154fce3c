"""The search of a kernel: races of starts on few rows, then the best on more, judged by the evidence of all.

1. A screen of columns suggests starts.
2. Exact evidence: its cost grows with n³, so what needs many evaluations is done on few rows. With many columns it has
   bad optima, all length-scales long and everything noise: starts with long length-scales, with short ones, and with
   short ones of the columns that the screen has found lead to different optima, and the evidence chooses.
3. Nearest-preceding evidence of many rows, from where exact evidence has led: it sees what varies only between close
   rows, as functions of coordinates. At the end exact evidence is added, which sees what varies over long distances.
4. A part of axes in place of the isotropic one: a product over all, for functions that jump or bend along single
   columns as trees find them, or over pairs, for sums of effects and interactions. Few rows say whether one promises
   enough to be tried on more. Elsewhere they gain a few nats at most, and predictions may be worse: hence a margin,
   also in the evidence of all rows, by landmarks.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations, islice
from operator import attrgetter
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pydirect._threads import for_each, raise_if_set, single_blas_thread
from pydirect._validation import FloatArray
from pydirect.features.kernel import PAIRS, SMOOTHNESS, SQUARED_EXPONENTIAL, KernelHyperparameters, linear_inputs
from pydirect.features.marginal_likelihood import MarginalLikelihood, Referee
from pydirect.features.nearest_evidence import NearestEvidence
from pydirect.features.race import FIRST_SCALE, Objective, Patience, RaceRun, descend, race, workers_for
from pydirect.features.rows import RowCounts
from pydirect.features.screen import RELEVANT, screen_columns
from pydirect.features.search_record import AXES_MARGINS, HyperparameterSearch, best_axes, unpursued

# Exact evidence: rows at most, and of the race; on half as many, real tables had optima of their own, all noise.
MAX_ROWS, FIRST_ROWS = 1000, 512
# Iterations with every smoothness, and nats a row that another than 3/2 must gain: with less, predictions were hardly
# better, some over-confident.
SMOOTHNESS_ITERATIONS, SMOOTHNESS_GAIN = 8, 0.07
# From 5/2 it is farther to the squared exponential, whose length-scales and amplitude may be a hundredth.
SMOOTHEST_ITERATIONS = 24
# The best's further iterations, and those on up to `max_rows` at the end.
FURTHER, LAST_ROWS = (48, Patience(3, 0.001)), (5, Patience(2, 0.002))
# Shares of the targets' variance from which noise is taken for a sign of a bad optimum, and from which there is nothing
# for another part to explain.
ALL_NOISE, MUCH_NOISE = 0.8, 0.5

# Rows from which nearest-preceding evidence is asked as well, and those of the exact race beside it: optima of only so
# few, all noise, are then not the only ones.
NEAREST_ROWS, FEWER_ROWS = 600, 256
# Rows among which neighbours are found: with more, nothing that matters was found on real tables.
REFERENCE_ROWS = 4000
# Inputs from which a table is wide: only the columns of largest scores have length-scales of their own here. The others
# hardly matter: their length-scale relative to the root of the number of inputs.
WIDE, NARROW, UNSEEN = 96, 32, 30.0
# Targets and neighbours of its race, and of the search that follows.
FEW_TARGETS, MANY_TARGETS = (1000, 15), (1500, 23)
# Iterations of the two best starts, of another smoothness, which must gain so many nats a row, and at the end.
LONGER, OTHER_SMOOTHNESS, LAST, NEAREST_PATIENCE = 12, (6, 0.02), 24, Patience(3, 0.001)
# Of columns of short length-scales: how many are tried, on how many rows, by the distance along how many inputs.
PAIR_COLUMNS, PAIR_TARGETS, PAIR_METRIC = 9, 256, 4
# Values that such a column has at least: between few, nothing is near.
DISTINCT_VALUES = 12
# Nats a row by which short length-scales must be better than long ones where everything else seems noise.
NOTHING = 0.005
TIE = 0.05  # nats a row by which another start may be behind and still win
PAIR_LENGTH_SCALE, PAIR_AMPLITUDE, PAIR_ISOTROPIC = 0.15, 0.3, 0.1

# Iterations of a part of axes, and once again while it is near: one that is needed gains early.
START_ITERATIONS = 6
FAR = 0.2  # nats a row that it may lack after the first, which begin without the main part or far from it
PROMISING = 0.5  # of what it must gain
# Nats that it must gain on few rows before it is tried on more, by `product_order`.
PROMISED = {0: 7.0, PAIRS: 10.0}
PAIRS_NOISE, PAIRS_AMPLITUDES, PAIRS_LENGTH_SCALE = 0.5, (0.05, 1.0), 1.5
VALUE = attrgetter("value")
MOST_PAIR_AXES = 16  # every axis costs an exponential for each entry of a covariance


@dataclass(frozen=True)
class KernelRows:
    """Distinct rows that a kernel is learned from: inputs x (n_rows, n_inputs), y (n_rows, n_outputs).

    The leading `n_linear` inputs are columns, others their normal scores. `tied` (n_inputs,): the length-scale of each
    input; see `MarginalLikelihood`. `axes`: inputs that the kernel may have a part of. `forms` (n_inputs,): the column
    that each input is a form of. `linear`: inputs of the linear part where `seen` are but some of the inputs.
    `precision`: as of `TrainingRows`.
    """

    x: FloatArray
    y: FloatArray
    weight: FloatArray
    n_linear: int
    tied: NDArray[np.intp] | None = None
    axes: NDArray[np.intp] = field(default_factory=lambda: np.arange(0))
    forms: NDArray[np.intp] | None = None
    linear: FloatArray | None = None
    seen: NDArray[np.intp] | None = None
    precision: FloatArray | None = None

    def take(self, rows: NDArray[np.intp]) -> Self:
        """Return some of the rows."""
        names = ("x", "y", "weight", "linear", "precision")
        known = {name: own for name in names if (own := getattr(self, name)) is not None}
        return replace(self, **{name: own[rows] for name, own in known.items()})

    @property
    def information(self) -> FloatArray:
        """Weights times precisions, by which the noise variance is divided, (n_rows,)."""
        return self.weight if self.precision is None else self.weight * self.precision

    def narrowed(self, scores: FloatArray) -> tuple[Self, FloatArray]:
        """Return a wide table's forms of the columns of largest scores, and these; the linear part sees all columns."""
        if self.forms is None or self.x.shape[1] <= WIDE:
            return self, scores
        # The categories of a column are seen together: those of which only some were would be noise.
        groups = np.arange(len(scores)) if self.tied is None else self.tied[: len(scores)]
        of_group = np.full(groups.max() + 1, -np.inf)
        np.maximum.at(of_group, groups, scores)
        best = np.flatnonzero(np.isin(groups, np.argsort(-of_group, kind="stable")[:NARROW]))
        seen = np.flatnonzero(np.isin(self.forms, best))
        tied = None if self.tied is None else np.unique(self.tied[seen], return_inverse=True)[1]
        linear, n_linear = linear_inputs(self.x, self.n_linear), int((seen < self.n_linear).sum())
        x, axes = np.ascontiguousarray(self.x[:, seen]), np.flatnonzero(np.isin(seen, self.axes))
        return replace(self, x=x, tied=tied, n_linear=n_linear, linear=linear, axes=axes, seen=seen), scores[best]

    def widened_kernel(self, kernel: KernelHyperparameters, n_inputs: int) -> KernelHyperparameters:
        """Return a kernel of all inputs, of which those that were not seen hardly matter."""
        if self.seen is None:
            return kernel
        scales, rates = np.full(n_inputs, UNSEEN * np.sqrt(n_inputs)), kernel.product_rates
        scales[self.seen] = kernel.length_scales
        if rates.size:
            rates = np.zeros(n_inputs)
            rates[self.seen] = kernel.product_rates
        return replace(kernel, length_scales=scales, product_rates=rates)

    def exact(self, rows: NDArray[np.intp]) -> MarginalLikelihood:
        """Return the exact evidence of some rows."""
        few = self.take(rows)
        own = few.x, few.y, few.information, self.n_linear, self.tied
        return MarginalLikelihood(*own, linear=few.linear, copies=few.weight)

    def nearest(
        self, targets: NDArray[np.intp], n_neighbours: int, exact: MarginalLikelihood, **options: Any
    ) -> NearestEvidence:
        """Return the evidence of some rows given their nearest preceding ones; all are in random order."""
        own = self.x, self.y, self.information, np.sort(targets)
        return NearestEvidence(*own, n_neighbours, exact, linear=self.linear, copies=self.weight, **options)


def search_kernel(
    rows: KernelRows, rng: np.random.Generator, *, max_rows: int = MAX_ROWS, thorough: bool = True
) -> tuple[KernelHyperparameters, HyperparameterSearch]:
    """Maximise marginal likelihood times priors; return the kernel and the record of the search.

    Exact evidence is of up to `max_rows` rows. Without `thorough` there are only steps 1 and 2.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect.features import KernelRows, search_kernel
    >>> rng = np.random.default_rng(0)
    >>> x = rng.standard_normal((100, 2))
    >>> rows = KernelRows(x, np.sin(2.0 * x[:, :1]), np.ones(100), n_linear=2)  # y ignores the second input
    >>> kernel, record = search_kernel(rows, rng)
    >>> bool(kernel.length_scales[1] > 10.0 * kernel.length_scales[0])
    True
    """
    n, many, n_inputs = len(rows.x), min(len(rows.x), max_rows), rows.x.shape[1]
    rows = replace(rows, weight=RowCounts.of(rows.x, rows.y, rows.weight).where_learned(rows.weight))
    with single_blas_thread(), np.errstate(under="ignore"):
        scores = own_scores = screen_columns(rows.x[:, : rows.n_linear], rows.y, rng)
        order, by_nearest = rng.permutation(n), thorough and n >= NEAREST_ROWS
        if by_nearest:
            rows, own_scores = rows.narrowed(scores)
        more = rows.exact(np.sort(order[: min(many, FIRST_ROWS) if thorough else many]))
        few = rows.exact(np.sort(order[:FEWER_ROWS])) if more.n_rows > FEWER_ROWS else more
        raced = race(few, starting_points(few, own_scores))
        shaped = race(few, [min(raced, key=VALUE).at(s) for s in SMOOTHNESS], SMOOTHNESS_ITERATIONS)
        begin = min(shaped, key=lambda run: run.value - SMOOTHNESS_GAIN * few.n_rows * (run.smoothness == 1.5))
        begin, *smoother = smoothest(few, begin, SMOOTHNESS_GAIN)
        shaped += smoother
        if by_nearest:
            # What varies only between close rows seems noise to few rows; more rows say more of everything.
            best, others, near = search_nearest(rows.take(order[:REFERENCE_ROWS]), more, begin, own_scores, rng)
        else:
            best, others, near = *search_exact(more, begin), list[RaceRun]()
        kernel = more.at(best.smoothness).unpack(best.theta)
        tried, gains = [*raced, *shaped, *near, *others, best], dict[int, float]()
        if thorough and kernel.noise_variance <= MUCH_NOISE:
            runs, gains = try_axes(rows, few, more, begin, best)
            tried += runs
            if (chosen := best_axes(gains, more.n_rows)) is not None:
                last = more
                if many > more.n_rows:
                    last = rows.exact(np.sort(order[:many]))
                    tried.append(descend(last.with_axes(rows.axes, chosen), runs[-1], *LAST_ROWS))
                ended = last.with_axes(rows.axes, chosen).at(tried[-1].smoothness).unpack(tried[-1].theta)
                referee = Referee(rows.x, rows.y, rows.information, rng, rows.weight)
                if n <= many or referee(ended) - referee(kernel) > AXES_MARGINS[chosen][1] * n:
                    kernel = ended
                else:
                    gains[chosen] = 0.0
        n_rows = few.n_rows, more.n_rows, n
        record = HyperparameterSearch.of(scores, raced, kernel.smoothness, n_rows, tried, gains, shaped, near)
    kernel = rows.widened_kernel(kernel, n_inputs)
    return replace(kernel, n_evaluations=record.n_evaluations), record


def smoothest(objective: Objective, best: RaceRun, gain: float) -> list[RaceRun]:
    """Return the better of a kernel and, where 5/2 was best, its limit, which must gain so much a row; then the run."""
    if best.smoothness != SMOOTHNESS[-1]:
        return [best]
    run = descend(objective, best.at(SQUARED_EXPONENTIAL), SMOOTHEST_ITERATIONS, FURTHER[1])
    return [run if run.value < best.value - gain * objective.n_rows else best, run]


def search_exact(more: MarginalLikelihood, begin: RaceRun) -> tuple[RaceRun, list[RaceRun]]:
    """Go on on more rows, where short length-scales race again if everything seems noise; return end and other runs."""
    tried: list[RaceRun] = []
    if np.exp(begin.theta[0]) > ALL_NOISE:
        short = replace(starting_points(more, np.zeros(0))[1], smoothness=begin.smoothness)
        begin = min(tried := race(more, [begin, short]), key=VALUE)
    return descend(more, begin, *FURTHER), tried


def search_nearest(
    rows: KernelRows, exact: MarginalLikelihood, begin: RaceRun, scores: FloatArray, rng: np.random.Generator
) -> tuple[RaceRun, list[RaceRun], list[RaceRun]]:
    """Search by nearest-preceding evidence of rows in random order, of which the first have exact evidence too.

    Few rows, all that exact evidence can have, are far from each other, and short length-scales explain nothing. Hence
    starts beside the best of those, `begin`: the same again but for the long one, the columns that the screen has found
    with far shorter length-scales, and the best of every column and pair of columns with short ones. Where they explain
    no more of what is mostly noise, nothing else is tried. Return the end, the runs in between, and those from the
    starts.
    """
    n, first = len(rows.x), exact.n_rows
    order = rng.permutation(n)
    few = rows.nearest(order[: FEW_TARGETS[0]], FEW_TARGETS[1], exact)
    pairs = rows.nearest(order[:PAIR_TARGETS], FEW_TARGETS[1], exact, metric_inputs=PAIR_METRIC)
    # What few rows cannot tell from noise may be plain to many: they go through the starts again.
    begin = replace(begin, name="few rows")
    long, *others = race(few, [begin, near_start(few, scores), *starting_points(few, scores)[1:]])
    raced = [long, *others, *race(few, [pair_start(pairs, long, scores)])]
    tried: list[RaceRun] = []
    chosen = min(raced, key=VALUE)
    if np.exp(long.theta[0]) < MUCH_NOISE or chosen.value < long.value - NOTHING * few.n_rows:
        close = [run for run in sorted(raced, key=VALUE)[:2] if run.value < chosen.value + TIE * few.n_rows]
        best = race(few, close, LONGER, NEAREST_PATIENCE)
        middle = min(best, key=VALUE)
        others = [middle.at(s) for s in SMOOTHNESS if s != middle.smoothness]
        shaped = race(few, others, OTHER_SMOOTHNESS[0])
        tried = [*best, *shaped]
        chosen = min(middle, *shaped, key=lambda run: run.value - OTHER_SMOOTHNESS[1] * few.n_rows * (run is middle))
        chosen, *smoother = smoothest(few, chosen, OTHER_SMOOTHNESS[1])
        tried += smoother
    targets = first + rng.permutation(n - first)[: MANY_TARGETS[0]]
    last = rows.nearest(targets, MANY_TARGETS[1], exact, adds_exact=True)
    return descend(last, chosen, LAST, NEAREST_PATIENCE), tried, raced


def try_axes(
    rows: KernelRows, few: MarginalLikelihood, more: MarginalLikelihood, begin: RaceRun, best: RaceRun
) -> tuple[list[RaceRun], dict[int, float]]:
    """Race parts of axes in place of the isotropic one, on few rows beside where `begin` led there, then on more.

    What promises most is tried first, others only if it gains too little. Return the runs, and what each part gains;
    the last run is that of a part which gains enough, if one does.
    """
    kernel, found = few.at(best.smoothness).unpack(best.theta), replace(best, value=begin.value)
    begins, stop = [(order, found) for order in orders_of(rows.axes)], threading.Event()
    # Optima of pairs are many: they begin once more as if nothing was known of scales.
    begins += [(order, replace(found, scale=None)) for order, _ in begins if order == PAIRS]
    of_begin = partial(race_axes, few, kernel, rows.axes, stop=stop)
    tried = for_each(of_begin, begins, workers_for(few, begins), stop)
    raise_if_set(stop)
    by_value = sorted(zip(begins, tried, strict=True), key=lambda each: -each[1].value)
    runs = {order: run for (order, _), run in by_value}  # the last, which is best
    promised = {order: float(begin.value - run.value) for order, run in runs.items()}
    gains = unpursued(promised, None, more.n_rows)
    promising = sorted((PROMISED[order] - gain, order) for order, gain in promised.items() if gain >= PROMISED[order])
    if promising:
        # Exact evidence alone has led there on these rows already.
        without = best if len(rows.x) < NEAREST_ROWS else descend(more, best, *FURTHER)
        tried.append(without)
    for _, order in promising:
        tried.append(descend(more.with_axes(rows.axes, order), runs[order], *FURTHER))
        gains[order] = float(without.value - tried[-1].value)
        if best_axes(gains, more.n_rows) is not None:
            break
    return tried, gains


def orders_of(axes: NDArray[np.intp]) -> list[int]:
    """Return the orders of parts of axes that are tried: a product, and pairs of them."""
    return [0] * (len(axes) > 0) + [PAIRS] * (MOST_PAIR_AXES >= len(axes) > 1)


def race_axes(
    objective: MarginalLikelihood,
    kernel: KernelHyperparameters,
    axes: NDArray[np.intp],
    start: tuple[int, RaceRun],
    stop: threading.Event | None = None,
) -> RaceRun:
    """Return where a part of axes in place of a kernel's isotropic one leads.

    `start` is the part's `product_order` and the run that has led to the kernel. What does not come near its value
    within a few iterations is dropped.
    """
    order, found = start
    part = objective.with_axes(axes, order)
    d, theta, scale = part.d, part.theta_of(kernel), None
    if order == PAIRS:  # the main part explains what it can: pairs must begin without it
        theta[0] += np.log(PAIRS_NOISE)
        theta[[1, 2 + d]], theta[3 + d : -1] = np.log(PAIRS_AMPLITUDES), np.log(PAIRS_LENGTH_SCALE)
        if found.scale is not None:
            scale = np.concatenate([found.scale[: 2 + d], np.full(len(axes) + 1, FIRST_SCALE), found.scale[-1:]])
    else:  # beside the kernel found there may be little for a product to explain
        theta[: 2 + d], theta[-1] = objective.start[: 2 + d], objective.start[-1]
    run = RaceRun("axes", theta, smoothness=kernel.smoothness, scale=scale)
    n_evaluations = 0
    for _ in range(2):
        run = descend(part, run, START_ITERATIONS, stop=stop)
        n_evaluations += run.n_evaluations
        if run.value > found.value + FAR * part.n_rows:
            break
    return replace(run, n_evaluations=n_evaluations)


# --- starts


def starting_points(likelihood: Objective, scores: FloatArray) -> list[RaceRun]:
    """Return the starts of the race: long length-scales, short ones, and those that a screen of columns suggests."""
    d, long = likelihood.d, likelihood.start
    short = long.copy()
    short[[*range(2, 2 + d), 3 + d]] += np.log(0.3)
    runs = [RaceRun("long", long), RaceRun("short", short)]
    relevant = _relevant(likelihood, scores)
    if relevant.size:
        runs.append(RaceRun("screened", _screened(likelihood, relevant)))
    return runs


def near_start(likelihood: Objective, scores: FloatArray) -> RaceRun:
    """Return a start with very short length-scales of the columns that a screen suggests, or of all."""
    relevant = _relevant(likelihood, scores)
    theta = _screened(likelihood, relevant) if relevant.size else likelihood.start.copy()
    theta[2 + (relevant if relevant.size else np.arange(likelihood.d))] += np.log(0.1)
    return RaceRun("near", theta)


def pair_start(few: NearestEvidence, long: RaceRun, scores: FloatArray) -> RaceRun:
    """Return the best of short length-scales of one or two columns, from where long ones have led."""
    d, best = few.d, RaceRun("pair", long.theta)
    ranked = np.argsort(-scores, kind="stable")
    continuous = (j for j in ranked if len(np.unique(few.x[:, j])) >= DISTINCT_VALUES)
    scales = dict.fromkeys(few.tied[list(islice(continuous, PAIR_COLUMNS))])
    for short in [*combinations(scales, 1), *combinations(scales, 2)]:
        theta = long.theta.copy()
        theta[0] = max(theta[0] - np.log(2), few.bounds[0][0])
        theta[[1, 2 + d]] = np.log([PAIR_AMPLITUDE, PAIR_ISOTROPIC])
        theta[[2 + scale for scale in short]] = np.log(PAIR_LENGTH_SCALE)
        few.update(theta)
        value = few(theta)[0]
        if value < best.value:
            best = RaceRun("pair", theta, value)
    return replace(best, n_evaluations=len(scales))


def _relevant(likelihood: Objective, scores: FloatArray) -> NDArray[np.intp]:
    return np.unique(likelihood.tied[np.flatnonzero(scores > RELEVANT)])


def _screened(likelihood: Objective, relevant: NDArray[np.intp]) -> FloatArray:
    d, theta = likelihood.d, likelihood.start.copy()
    theta[1] = 0.0
    theta[2 : 2 + d] = likelihood.mean[2 : 2 + d] + 1.0
    theta[2 + relevant] = 0.25 * np.log(relevant.size)
    theta[2 + d] = np.log(0.1)
    return theta
