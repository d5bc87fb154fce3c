"""Regressors that know the noise of each row: their predictions, draws and files."""

from __future__ import annotations

from typing import Any

import numpy as np

from pydirect._threads import resolve_n_threads
from pydirect._validation import FloatArray
from pydirect.distributions.priors import GaussianPrior, as_prior
from pydirect.estimators._findings import words_of_constant_noise
from pydirect.estimators._growing import GrowingModel
from pydirect.estimators._noise_model import CONSTANT, MIN_ROWS_TO_CHOOSE, NoiseModel
from pydirect.noise.student_t import within_reach
from pydirect.persistence.fields import Arrays, Header, Writer, build_one, require_type

NOISE_OF_ROWS = ("varying", "student_t")


class RowNoiseModel(GrowingModel):
    """Base of regressors whose noise may vary from row to row or have heavy tails.

    A subclass sets ``noise_model_`` when it infers: None where the noise is that of the posteriors.
    """

    noise: str | float
    store_loo: bool
    target_transform: Any
    noise_model_: NoiseModel | None
    _untried: str | None  # of a loaded model: why kinds of noise were not compared

    def _check_noise_of_rows(self) -> None:
        """Raise unless noise that is not the posterior's goes with the other parameters."""
        if self.noise not in NOISE_OF_ROWS:
            return
        if self.basis != "decorrelated":
            raise ValueError(f"noise must not be {self.noise!r} in the raw basis; use basis='decorrelated'")
        if self.store_loo:
            raise ValueError(f"store_loo must be False with noise={self.noise!r}, which weights the rows")
        asked = [self.target_transform] if isinstance(self.target_transform, str) else self.target_transform or []
        if not {*asked} <= {None, "sqrt"}:
            raise ValueError(
                f"target_transform must be None or 'sqrt' with noise={self.noise!r}, got {self.target_transform!r}: "
                "the mean of exp(z) over uncertain noise variances is infinite"
            )

    def _standardise_targets(self, targets: FloatArray, weight: FloatArray | None) -> FloatArray:
        return super()._standardise_targets(within_reach(targets) if self.noise == "student_t" else targets, weight)

    def _may_fit_noise(self) -> bool:
        """Whether noise of rows was asked for, or goes with the rest."""
        if self.noise in NOISE_OF_ROWS:
            return True
        flexible = self.basis == "decorrelated" and self._learns_kernel()  # else what f misses would pass for noise
        transform = self.features_.target_transform
        plain = not self.store_loo and (transform is None or transform.is_identity)
        return flexible and plain and isinstance(as_prior(self.prior), GaussianPrior)

    def _check_without_rows(self) -> None:
        super()._check_without_rows()
        if self.noise in NOISE_OF_ROWS:
            raise ValueError(
                f"noise must not be {self.noise!r} where only sums over rows are kept, as it needs the rows again: fit "
                "to rows in memory, or use noise='auto'"
            )

    def _forget(self) -> None:
        super()._forget()
        for name in ("noise_model_", "noise_choice_", "_untried"):
            self.__dict__.pop(name, None)

    def _set_results(self) -> None:
        super()._set_results()
        model = self.noise_model_
        densities = {} if model is None else dict(zip(model.candidates, model.log_densities, strict=True))
        self.noise_choice_ = {
            name: float(value[0]) if self._one_dimensional else value.copy() for name, value in densities.items()
        }

    def _elbo_units(self) -> FloatArray:
        units = super()._elbo_units()
        return units if self.noise_model_ is None else units - self.noise_model_.log_weights

    def _mean_noise_variance(self) -> FloatArray:
        return super()._mean_noise_variance() if self.noise_model_ is None else self.noise_model_.mean_variance

    def _noise_of(self, rows: FloatArray) -> list[tuple[FloatArray, FloatArray]]:
        noises = super()._noise_of(rows)
        if self.noise_model_ is None:
            return noises
        own = self.noise_model_.of(rows, resolve_n_threads(self.n_threads))
        return [noise if mixture is None else mixture for noise, mixture in zip(noises, own, strict=True)]

    def _drawn_noise(self, x: FloatArray, output: int, n_samples: int, rng: np.random.Generator) -> FloatArray:
        if self.noise_model_ is None or self.noise_model_.choices[output] == CONSTANT:
            return super()._drawn_noise(x, output, n_samples, rng)
        drawn = np.empty((len(x), n_samples))
        for rows in self._blocks(x):
            weights, values = self._noise_of(x[rows])[output]
            node = rng.choice(len(weights), (len(values), n_samples), p=weights)
            drawn[rows] = np.take_along_axis(values, node, axis=1)
        return drawn

    def summary(self) -> str:
        lines = [super().summary()]
        if self.effective_rows_ < 2:
            lines.append("Standard deviations mean nothing: a single row does not tell how far targets vary.")
        elif self.noise_model_ is not None:
            lines += self.noise_model_.words()
        elif self.noise == "auto" and getattr(self, "local_", None) is None:
            lines.append(words_of_constant_noise(self._why_noise_was_not_compared()))
        return "\n".join(lines)

    def _why_noise_was_not_compared(self) -> str | None:
        """Return why `noise="auto"` did not compare kinds of noise, if it did not."""
        if hasattr(self, "_untried"):
            return self._untried
        if self.basis != "decorrelated":
            return f"with basis={self.basis!r}"
        if hasattr(self, "statistics_") or hasattr(self, "noisy_statistics_"):
            return "by partial_fit or from sums over rows"
        if self.store_loo:
            return "with store_loo=True"
        if not self._may_fit_noise():
            return "with these features, this prior or this target_transform"
        few = self.n_samples_ < MIN_ROWS_TO_CHOOSE
        return f"on fewer than {MIN_ROWS_TO_CHOOSE} rows" if few else None

    def _to_fields(self, writer: Writer) -> Header:
        model = self.noise_model_
        return {
            **super()._to_fields(writer),
            "noise": None if model is None else writer.fields(model, "noise"),
            "noise_untried": self._why_noise_was_not_compared(),
        }

    def _from_fields(self, header: Header, arrays: Arrays) -> None:
        super()._from_fields(header, arrays)
        self.noise_model_, self._untried = None, header["noise_untried"]
        require_type(self._untried, "noise_untried", str, type(None))
        if header["noise"] is not None:
            self.noise_model_ = build_one((NoiseModel,), header["noise"], arrays, "noise")
            self.noise_model_.check(self.features_.n_features_in, len(self.posteriors_))
