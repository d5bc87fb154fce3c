"""Sizes of small models: their forms, the bytes of their parts, and limits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pydirect._validation import FloatArray
from pydirect.features.basis import Basis
from pydirect.features.inputs import InputMap
from pydirect.features.maps import FourierFeatures
from pydirect.quantized.integer.compile import build_program, lay_out
from pydirect.quantized.integer.fixed_point import FixedResults
from pydirect.quantized.integer.storage import program_bytes
from pydirect.quantized.integer.units import OutputScale
from pydirect.quantized.packing import bits_for
from pydirect.quantized.predictors import QuantizedPredictor

MOST_SAMPLES = 16
# Three non-zero weights: a frequency and a constant.
FEWEST_WEIGHTS = 3
UNLIMITED = 2**40


@dataclass(frozen=True)
class Costs:
    """Number of bytes of the parts of a model.

    - `frequency`, `single`: of a frequency with its two weights, and of an input or the constant with its weight, over
      all samples.
    """

    fixed: float
    frequency: float
    single: float

    @property
    def least(self) -> float:
        """Number of bytes of a model of one frequency and a constant."""
        return self.fixed + self.frequency + self.single


@dataclass(frozen=True)
class Form:
    """Form of a model, independent of its number of basis functions.

    - `grid`, (n_levels,).
    """

    n_samples: int
    grid: FloatArray
    feature_bits: int
    frequency_bits: int
    n_outputs: int = 1

    @property
    def n_columns(self) -> int:
        """Number of samples of all outputs."""
        return self.n_outputs * self.n_samples

    @property
    def zero(self) -> int:
        """Code of the level zero."""
        return int(np.flatnonzero(self.grid == 0.0)[0])

    def costs(self, input_map: InputMap) -> Costs:
        """Measure the costs from the tables of models of one and two frequencies, with and without an input."""
        d = input_map.n_outputs
        one, two, more = (self._bytes(input_map, f, linear) for f, linear in ((1, 0), (2, 0), (1, 1)))
        constant = self.n_columns * bits_for(len(self.grid)) / 8
        return Costs(one - (two - one) - constant, two - one, more - one) if d else Costs(one, 0.0, 0.0)

    def _bytes(self, input_map: InputMap, n_frequencies: int, n_linear: int) -> float:
        linear = np.zeros(input_map.n_outputs)
        linear[:n_linear] = 0.5
        features = FourierFeatures(np.ones((len(linear), n_frequencies)), np.ones(n_frequencies), linear, 0.3)
        used = np.ones(features.n_weights, dtype=bool)
        layout = lay_out(features, used)
        codes = np.zeros((len(layout.order), self.n_columns), dtype=np.uint8)
        one = np.ones(self.n_outputs)
        program = build_program(
            Basis(input_map, features),
            layout,
            codes,
            self.grid,
            self.n_samples,
            OutputScale(one, one, one),
            feature_bits=self.feature_bits,
            frequency_bits=self.frequency_bits,
        )
        return sum(program_bytes(FixedResults.of(program)).values()) + codes.size * bits_for(len(self.grid)) / 8


@dataclass(frozen=True)
class Limits:
    """Limits on the size of a model.

    - `n_bytes`, `n_weights`: the latter per output.
    """

    n_bytes: int
    n_weights: float

    def excess(self, model: QuantizedPredictor) -> tuple[float, float]:
        """Return by how many bytes, and by how many non-zero weights per output and sample, a model is too large."""
        weights = float(model.report()["n_nonzero"]) / model.packed.shape[1]
        return model.n_bytes - self.n_bytes, weights - self.n_weights


# Numbers of samples and of levels that are compared: proposals in the first form, the best of them in the others.
FORMS = ((2, 15), (1, 15), (4, 15), (2, 7))
