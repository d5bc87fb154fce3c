"""A sampler for Optuna whose suggestions cost about twice as much after ten thousand trials as after a hundred."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from scipy.stats import qmc

from pydirect._validation import FloatArray, as_count
from pydirect.decisions.box import Box, BoxSearch

try:
    from optuna.distributions import BaseDistribution, CategoricalDistribution
    from optuna.samplers import BaseSampler, RandomSampler
    from optuna.study import Study, StudyDirection
    from optuna.trial import FrozenTrial, TrialState
except ImportError as error:
    raise ImportError("DirectSampler needs Optuna: pip install 'pydirect[optuna]'") from error


# Integers with more values than these are searched as if they were continuous.
MANY_VALUES = 10_000


class Parameter:
    """A parameter of Optuna as a column of a box.

    Numbers are divided by their range, of logarithms if asked for. Categories are integers, and those with steps take
    up one step each, so that uniform numbers make all values equally likely.
    """

    def __init__(self, distribution: BaseDistribution) -> None:
        d: Any = distribution
        self.distribution, self.is_category = d, isinstance(d, CategoricalDistribution)
        ends: Any = (0, len(d.choices) - 1, 1) if self.is_category else (d.low, d.high, d.step)
        self.low, self.high, self.step = ends
        scales: Any = (np.log, np.exp) if not self.is_category and d.log else (np.positive, np.positive)
        self._scaled, self._restored = scales
        half = 0.5 * (self.step or 0)
        self._begin, end = self._scaled(float(self.low - half)), self._scaled(float(self.high + half))
        self._extent = end - self._begin

    @property
    def levels(self) -> FloatArray | None:
        """Values in the box where the parameter has steps."""
        n = round((self.high - self.low) / self.step) + 1 if self.step else math.inf
        return None if n > MANY_VALUES else self._to_unit(self.low + self.step * np.arange(float(n)))

    def to_unit(self, value: Any) -> float:
        """Return a value's number in the box."""
        return float(self._to_unit(self.distribution.to_internal_repr(value)))

    def _to_unit(self, value: Any) -> Any:
        return (self._scaled(value) - self._begin) / self._extent

    def from_unit(self, u: float) -> Any:
        """Return the value at a number of the box."""
        value = float(self._restored(self._begin + u * self._extent))
        if self.step:
            value = self.low + self.step * round((value - self.low) / self.step)
        return self.distribution.to_external_repr(min(max(value, self.low), self.high))


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
        with self._lock:
            self._read(study)
            modelled = self._modelled()
            if not search_space or not set(search_space) <= {name for name, _ in modelled}:
                return {}
            row = self._next_row(study, trial.number)
            values = {name: parameter.from_unit(u) for (name, parameter), u in zip(modelled, row, strict=True)}
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
            if self._study is not None and self._search is not None:
                self._search.rng = self._rng

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.RLock())

    # --- trials

    def _read(self, study: Study) -> None:
        """Take in the trials that have finished since the last time."""
        if study.study_name != self._study:
            self._study = study.study_name
            self._trials: list[FrozenTrial] = []
            self._unfinished: list[FrozenTrial] = []
            self._n_seen = 0
            self._parameters: dict[str, Parameter | None] = {}  # None where the distribution changes
            self._constraints: set[str] = set()
            self._asked: dict[int, dict[str, Any]] = {}
            self._search: BoxSearch | None = None
        trials = study.get_trials(deepcopy=False)  # in the order of their numbers
        current = [*(trials[trial.number] for trial in self._unfinished), *trials[self._n_seen :]]
        self._n_seen = len(trials)
        self._unfinished = [trial for trial in current if not trial.state.is_finished()]
        new = [trial for trial in current if trial.state.is_finished()]
        self._trials += new
        known = self._parameters.copy(), self._constraints.copy()
        for trial in new:
            self._asked.pop(trial.number, None)
            self._constraints |= trial.constraints.keys()
            for name, distribution in trial.distributions.items():
                own = None if distribution.single() else self._parameters.setdefault(name, Parameter(distribution))
                if own is not None and own.distribution != distribution:
                    self._parameters[name] = None
        if (self._parameters, self._constraints) != known:
            self._search = None
        elif self._search is not None and new:
            self._tell(self._search, new, study)

    def _modelled(self) -> list[tuple[str, Parameter]]:
        """Return the parameters of the model, by name."""
        return [(name, p) for name, p in sorted(self._parameters.items()) if p is not None]

    def _tell(self, search: BoxSearch, trials: Sequence[FrozenTrial], study: Study) -> None:
        rows = self._rows(trial.params for trial in trials)
        violations = [[trial.constraints.get(name, np.nan) for name in sorted(self._constraints)] for trial in trials]
        failed = np.array([trial.state == TrialState.FAIL for trial in trials])
        own = ~np.isnan(rows).all(axis=1)
        search.tell(rows[own], self._objectives(trials, study)[own], np.array(violations)[own], failed[own])

    def _rows(self, params: Iterable[dict[str, Any]]) -> FloatArray:
        """Return rows of the box, with NaN for parameters that are not there."""
        modelled = self._modelled()
        rows = [[p.to_unit(own[name]) if name in own else np.nan for name, p in modelled] for own in params]
        return np.array(rows).reshape(-1, len(modelled))

    def _objectives(self, trials: Sequence[FrozenTrial], study: Study) -> FloatArray:
        """Return values to be maximised, (n_trials, n_objectives), NaN if unknown."""
        signs = np.where([direction == StudyDirection.MAXIMIZE for direction in study.directions], 1.0, -1.0)
        values = np.full((len(trials), len(signs)), np.nan)
        median = None
        for own, trial in zip(values, trials, strict=True):
            if trial.state == TrialState.COMPLETE:
                own[:] = signs * trial.values
            elif trial.state == TrialState.PRUNED and trial.intermediate_values and len(signs) == 1:
                if median is None:
                    completed = [signs[0] * t.values[0] for t in self._trials if t.state == TrialState.COMPLETE]
                    median = np.median(completed) if completed else np.inf
                own[0] = min(signs[0] * trial.intermediate_values[max(trial.intermediate_values)], median)
        return values

    # --- suggestions

    def _next_row(self, study: Study, number: int) -> FloatArray:
        """Return one of the points that the model begins with, or what a search asks for while other trials run."""
        if self._search is None:
            modelled = [parameter for _, parameter in self._modelled()]
            box = Box([p.levels for p in modelled], [p.is_category for p in modelled])
            self._search = BoxSearch(box, len(study.directions), len(self._constraints), self._rng)
            self._tell(self._search, self._trials, study)
            self._startup = np.empty((0, box.n_columns))
        search = self._search
        if search.n_known < self._n_startup_trials:
            if not len(self._startup):
                sobol = qmc.Sobol(search.box.n_columns, seed=self._rng)
                self._startup = sobol.random_base2(math.ceil(math.log2(self._n_startup_trials)))
            row, self._startup = self._startup[:1], self._startup[1:]
            return search.box.snapped(row)[0]
        running = [t for t in self._unfinished if t.state == TrialState.RUNNING and t.number != number]
        rows = self._rows({**self._asked.get(t.number, {}), **t.params} for t in running)
        return search.ask(rows[~np.isnan(rows).all(axis=1)])
