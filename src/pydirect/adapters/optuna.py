"""A sampler for Optuna whose suggestions cost about twice as much after ten thousand trials as after a hundred."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import qmc

from pydirect._validation import FloatArray, as_count
from pydirect.decisions.box import Box, BoxSearch, Column

# Integers with more values than these are searched as if they were continuous.
MANY_VALUES = 10_000


@dataclass(frozen=True)
class Parameter:
    """A parameter of Optuna as a column of a box.

    Numbers are divided by their range, of logarithms if asked for. Those with steps take up one step each, so that
    uniform numbers make all values equally likely.
    """

    distribution: BaseDistribution

    @property
    def column(self) -> Column:
        """The column: with levels where the parameter has steps."""
        d = self.distribution
        if isinstance(d, CategoricalDistribution):
            return Column(np.arange(float(len(d.choices))), is_category=True)
        assert isinstance(d, FloatDistribution | IntDistribution)
        if d.step is None:
            return Column()
        n = round((d.high - d.low) / d.step) + 1
        if n > MANY_VALUES:
            return Column()
        return Column(np.array([self._to_unit(d.low + k * d.step) for k in range(n)]))

    def to_unit(self, value: Any) -> float:
        """Return a value's number in the box."""
        internal = self.distribution.to_internal_repr(value)
        return internal if isinstance(self.distribution, CategoricalDistribution) else self._to_unit(internal)

    def from_unit(self, u: float) -> Any:
        """Return the value at a number of the box."""
        d = self.distribution
        if isinstance(d, CategoricalDistribution):
            return d.to_external_repr(u)
        assert isinstance(d, FloatDistribution | IntDistribution)
        low, high = self._ends
        scaled = low + u * (high - low)
        value = math.exp(scaled) if d.log else scaled
        if d.step is not None:
            value = d.low + d.step * round((value - d.low) / d.step)
        return d.to_external_repr(min(max(value, d.low), d.high))

    @property
    def _ends(self) -> tuple[float, float]:
        """Ends of the range, or of its logarithms, half a step beyond the last values."""
        d = self.distribution
        assert isinstance(d, FloatDistribution | IntDistribution)
        half = 0.0 if d.step is None else 0.5 * d.step
        low, high = d.low - half, d.high + half
        return (math.log(low), math.log(high)) if d.log else (low, high)

    def _to_unit(self, value: float) -> float:
        low, high = self._ends
        d = self.distribution
        assert isinstance(d, FloatDistribution | IntDistribution)
        return ((math.log(value) if d.log else value) - low) / (high - low)


try:
    from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
    from optuna.samplers import BaseSampler, RandomSampler
    from optuna.study import Study, StudyDirection
    from optuna.trial import FrozenTrial, TrialState
except ImportError as error:
    raise ImportError("DirectSampler needs Optuna: pip install 'pydirect[optuna]'") from error


class DirectSampler(BaseSampler):
    """Sampler for Optuna: Bayesian optimisation with a Gaussian process of bounded cost.

    Every objective and every constraint has a smooth Gaussian process of its own, which is exact for the first 300
    trials and has 300 to 400 landmarks afterwards; a trial then costs an update of rank one, and hyperparameters are
    searched again whenever the number of trials has grown by a tenth. Expected improvement on the best posterior mean
    is ascended by gradients in numbers and level by level in integers and categories.

    - **Conditional parameters** share the model of all others: a parameter that a trial did not have is in the middle
      of its range, and which parameters a suggestion will have is learned from those of earlier trials.
    - **Constraints** are those set by `optuna.trial.Trial.set_constraint`: feasible up to zero.
    - **Several objectives** are improved in a random direction each time, so that the front's hypervolume grows.
    - **Parallel trials**: for those still running, values are drawn from the posterior and believed.
    - **Pruned trials** count as their last intermediate value, or as the median trial if that is worse. **Failed** ones
      tell where trials fail: a process of its own learns how likely that is, which counts against a suggestion.
    - Parameters whose distribution changes from trial to trial are sampled by an `optuna.samplers.RandomSampler`.

    Parameters
    ----------
    n_startup_trials : int, default=10
        Number of trials before the first suggestion of the model: points of a scrambled Sobol sequence.
    seed : int, optional
        Suggestions are the same for the same seed and trials.

    Examples
    --------
    >>> import optuna
    >>> from pydirect.adapters import DirectSampler
    >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
    >>> study = optuna.create_study(sampler=DirectSampler(seed=0))
    >>> study.optimize(lambda trial: (trial.suggest_float("x", -5, 5) - 2) ** 2, n_trials=20)
    >>> round(study.best_params["x"], 1)
    2.0
    """

    def __init__(self, *, n_startup_trials: int = 10, seed: int | None = None) -> None:
        self._n_startup_trials = as_count(n_startup_trials, "n_startup_trials")
        self._rng = np.random.default_rng(seed)
        self._independent = RandomSampler(seed=seed)
        self._lock = threading.RLock()
        self._study: str | None = None
        self._begin()

    def _begin(self) -> None:
        """Forget all trials."""
        self._trials: list[FrozenTrial] = []
        self._unfinished: dict[int, FrozenTrial] = {}
        self._n_seen = 0
        self._parameters: dict[str, Parameter | None] = {}  # None where the distribution changes
        self._constraints: set[str] = set()
        self._asked: dict[int, dict[str, Any]] = {}
        self._search: BoxSearch | None = None
        self._startup: FloatArray | None = None

    # --- what Optuna calls

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return all parameters that any finished trial had, conditional ones included."""
        with self._lock:
            self._read(study)
            return {name: parameter.distribution for name, parameter in self._modelled()}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return a suggestion for all of these parameters.

        - `search_space`: Parameters to suggest, as `infer_relative_search_space` returned them.
        """
        if not search_space:
            return {}
        with self._lock:
            self._read(study)
            names = [name for name, _ in self._modelled()]
            if not set(search_space) <= set(names):
                return {}
            search = self._searched(study)
            begun = search.n_known >= self._n_startup_trials
            row = self._next_row(search, trial.number) if begun else self._first_row(search.box)
            values = {name: parameter.from_unit(u) for (name, parameter), u in zip(self._modelled(), row, strict=True)}
            self._asked[trial.number] = values
            return {name: values[name] for name in search_space}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Return a random value."""
        return self._independent.sample_independent(study, trial, param_name, param_distribution)

    def reseed_rng(self) -> None:
        """Make copies of the sampler in other processes differ."""
        with self._lock:
            self._rng = np.random.default_rng()
            self._independent.reseed_rng()
            if self._search is not None:
                self._search.reseed(self._rng)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.RLock())

    # --- trials

    def _modelled(self) -> list[tuple[str, Parameter]]:
        """Return the parameters of the model, by name."""
        return [(name, p) for name, p in sorted(self._parameters.items()) if p is not None]

    def _read(self, study: Study) -> None:
        """Take in the trials that have finished since the last time."""
        if study.study_name != self._study:
            self._begin()
            self._study = study.study_name
        trials = study.get_trials(deepcopy=False)  # in the order of their numbers
        current = [trials[number] for number in [*self._unfinished, *range(self._n_seen, len(trials))]]
        self._n_seen = len(trials)
        self._unfinished = {trial.number: trial for trial in current if not trial.state.is_finished()}
        new = [trial for trial in current if trial.state.is_finished()]
        if not new:
            return
        for trial in new:
            self._asked.pop(trial.number, None)
        if self._changes_box(new):
            self._search = self._startup = None
        self._trials += new
        if self._search is not None:
            self._tell(new, study)

    def _changes_box(self, trials: Iterable[FrozenTrial]) -> bool:
        """Record parameters and constraints of trials; return whether any are new or others."""
        changed = False
        for trial in trials:
            for name, distribution in trial.distributions.items():
                if distribution.single():
                    continue
                if name not in self._parameters:
                    self._parameters[name] = Parameter(distribution)
                    changed = True
                else:
                    known = self._parameters[name]
                    if known is not None and known.distribution != distribution:
                        self._parameters[name] = None
                        changed = True
            changed |= not set(trial.constraints) <= self._constraints
            self._constraints |= set(trial.constraints)
        return changed

    def _searched(self, study: Study) -> BoxSearch:
        """Return the search that knows all trials."""
        if self._search is None:
            box = Box(tuple(parameter.column for _, parameter in self._modelled()))
            self._search = BoxSearch(box, len(study.directions), len(self._constraints), self._rng)
            self._tell(self._trials, study)
        return self._search

    def _tell(self, trials: Sequence[FrozenTrial], study: Study) -> None:
        assert self._search is not None
        rows = self._rows([trial.params for trial in trials])
        objectives = self._objectives(trials, study)
        constraints = [[trial.constraints.get(name, np.nan) for name in sorted(self._constraints)] for trial in trials]
        outcomes = np.hstack([objectives, np.array(constraints).reshape(len(trials), -1)])
        failed = np.array([trial.state == TrialState.FAIL for trial in trials])
        own = ~np.isnan(rows).all(axis=1)
        self._search.tell(rows[own], outcomes[own], failed[own])

    def _rows(self, params: Sequence[dict[str, Any]]) -> FloatArray:
        """Return rows of the box, with NaN for parameters that are not there."""
        modelled = self._modelled()
        rows = [[p.to_unit(own[name]) if name in own else np.nan for name, p in modelled] for own in params]
        return np.array(rows).reshape(len(params), len(modelled))

    def _objectives(self, trials: Sequence[FrozenTrial], study: Study) -> FloatArray:
        """Return values to be maximised, (n_trials, n_objectives), NaN if unknown."""
        signs = np.where([direction == StudyDirection.MAXIMIZE for direction in study.directions], 1.0, -1.0)
        values = np.full((len(trials), len(signs)), np.nan)
        for own, trial in zip(values, trials, strict=True):
            if trial.state == TrialState.COMPLETE:
                own[:] = signs * trial.values
        pruned = [k for k, t in enumerate(trials) if t.state == TrialState.PRUNED and t.intermediate_values]
        if pruned and len(signs) == 1:
            completed = [signs[0] * t.values[0] for t in self._trials if t.state == TrialState.COMPLETE]
            reported = [trials[k].intermediate_values for k in pruned]
            last = [signs[0] * values_of[max(values_of)] for values_of in reported]
            values[pruned, 0] = np.minimum(last, np.median(completed)) if completed else last
        return values

    # --- suggestions

    def _first_row(self, box: Box) -> FloatArray:
        """Return the next of the points that the model begins with."""
        if self._startup is None or not len(self._startup):
            sobol = qmc.Sobol(box.n_columns, seed=self._rng)
            self._startup = sobol.random_base2(math.ceil(math.log2(self._n_startup_trials)))
        row, self._startup = self._startup[0], self._startup[1:]
        return box.at(row[None])[0]

    def _next_row(self, search: BoxSearch, number: int) -> FloatArray:
        """Return what the search asks for, while other trials are running."""
        running = [t for t in self._unfinished.values() if t.state == TrialState.RUNNING and t.number != number]
        rows = self._rows([{**self._asked.get(t.number, {}), **t.params} for t in running])
        return search.ask(rows[~np.isnan(rows).all(axis=1)])
