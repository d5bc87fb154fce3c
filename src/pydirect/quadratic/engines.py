"""Shapes of quadratic networks, and the engines that evaluate them: construction, cost and choice."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Annotated, Any

import numpy as np

from pydirect import _core
from pydirect._validation import FloatArray, as_count, as_flag, as_float_array, as_sample_weight, as_widths
from pydirect.features.inputs import LARGEST
from pydirect.persistence.schema import As

# A network sees standardised inputs at half their size, so that the powers that deep networks take of them stay small.
INPUT_SCALE = 0.5
ENGINES = ("tensor", "datum", "monomial")  # see `choose_engine`
NETWORK_ENGINES = ("auto", *ENGINES, "coreset")
# No engine can evaluate more hidden layers than this, whatever their widths.
MAX_DEPTH = 6
# Number of training steps over which the cost of an engine's construction is spread.
EXPECTED_STEPS = 1000
# Limit on what engines hold beside the data.
MAX_ENGINE_BYTES = 2 * 2**30


@dataclass(frozen=True)
class NetworkShape:
    """Widths of a quadratic network, and the order of its weights: by layer, output unit, input."""

    n_inputs: int  # number of inputs, without the bias
    hidden_layer_sizes: Annotated[Any, As(tuple[int, ...])]  # at least one, first to last
    bias: bool = True  # give every layer, the output too, a last input fixed to one

    def __post_init__(self) -> None:
        widths = as_widths(self.hidden_layer_sizes, "hidden_layer_sizes")
        if len(widths) > MAX_DEPTH:
            raise ValueError(f"hidden_layer_sizes must hold at most {MAX_DEPTH} widths, got {len(widths)}")
        object.__setattr__(self, "bias", as_flag(self.bias, "bias"))
        object.__setattr__(self, "hidden_layer_sizes", widths)
        as_count(self.n_inputs, "n_inputs", 0 if self.bias else 1)

    @property
    def depth(self) -> int:
        """Number of hidden layers."""
        return len(self.hidden_layer_sizes)

    @property
    def largest_input(self) -> float:
        """Magnitude at which inputs are cut off, so that no output's square overflows."""
        return float(LARGEST ** (0.5 / 2**self.depth))

    @cached_property
    def layers(self) -> tuple[tuple[int, int], ...]:
        """``(fan_out, fan_in)`` of every layer, the output last; the bias counts as an input."""
        sizes = (self.n_inputs, *self.hidden_layer_sizes, 1)
        return tuple((fan_out, fan_in + self.bias) for fan_in, fan_out in pairwise(sizes))

    @cached_property
    def slices(self) -> tuple[slice, ...]:
        """Positions of the weights of each layer."""
        ends = accumulate((fan_out * fan_in for fan_out, fan_in in self.layers), initial=0)
        return tuple(slice(a, b) for a, b in pairwise(ends))

    @property
    def n_weights(self) -> int:
        """Number of weights b."""
        return self.slices[-1].stop

    @property
    def key(self) -> tuple[int, list[int], bool]:
        """Return the shape as the compiled module takes it."""
        return self.n_inputs, list(self.hidden_layer_sizes), self.bias

    def matrices(self, weights: FloatArray) -> list[FloatArray]:
        """Split vectors of weights (..., n_weights) into a matrix (..., fan_out, fan_in) per layer."""
        return [
            weights[..., part].reshape(*weights.shape[:-1], *layer)
            for part, layer in zip(self.slices, self.layers, strict=True)
        ]

    def forward(self, weights: FloatArray, x: FloatArray) -> FloatArray:
        """Evaluate networks of weights (n_networks, n_weights) at x (n_rows, n_inputs); (n_networks, n_rows)."""
        (output,) = deque(self.sums(weights, x), maxlen=1)
        return output[:, :, 0]

    def sums(self, weights: FloatArray, x: FloatArray) -> Iterator[FloatArray]:
        """Yield every layer's weighted sums, (n_networks, n_rows, fan_out); arguments as in `forward`."""
        state = np.broadcast_to(x, (len(weights), *x.shape))
        for matrix in self.matrices(weights):
            sums = self._with_bias(state) @ matrix.transpose(0, 2, 1)
            yield sums
            state = sums**2

    def _with_bias(self, state: FloatArray) -> FloatArray:
        return np.concatenate([state, np.ones((*state.shape[:-1], 1))], axis=-1) if self.bias else state


def make_engine(
    kind: str, shape: NetworkShape, x: FloatArray, y: FloatArray, weight: FloatArray | None = None
) -> _core.NetworkEngine:
    """Return a compiled engine that holds x (n_rows, n_inputs), y and weights (n_rows,); see `choose_engine`."""
    x = as_float_array(x, "x", (len(x), shape.n_inputs))
    y = as_float_array(y, "y", (len(x),))
    weight = as_sample_weight(weight, len(x))
    return _core.NetworkEngine(kind, *shape.key, x, y, weight)


def choose_engine(shape: NetworkShape, n_rows: int, kind: str = "auto") -> str:
    """Return the name of the engine with the fewest operations per step that fits into memory, or raise ValueError.

    ``"tensor"``: one hidden layer, from sums of products of four inputs. ``"datum"``: one or two, row by row.
    ``"monomial"``: the paper's forward pass with equal terms merged; any depth, small networks only.
    """
    depth = shape.depth
    if depth > {"tensor": 1, "datum": 2}.get(kind, depth):
        raise ValueError(f"engine must serve {depth} hidden layers, got {kind!r}")
    if kind == "monomial" or depth > 2:
        return "monomial"  # its constructor checks its size
    served = (kind,) if kind != "auto" else ("tensor", "datum") if depth == 1 else ("datum",)
    cost = {k: _cost(k, shape, n_rows) for k in served}
    possible = [k for k in served if cost[k][1] <= MAX_ENGINE_BYTES]
    if not possible:
        needed = " or ".join(f"{cost[k][1] / 2**30:.3g} GiB ({k})" for k in served)
        raise ValueError(
            f"hidden_layer_sizes must be smaller for exact inference: {shape.hidden_layer_sizes} with "
            f"{shape.n_inputs} inputs would take {needed}, against a limit of {MAX_ENGINE_BYTES / 2**30:.3g} GiB"
        )
    return min(possible, key=lambda k: cost[k][0])


def engines_in_memory(kind: str, shape: NetworkShape, n_rows: int) -> int:
    """Return the number of engines of a kind that fit into memory together, at least one."""
    return 1 if kind == "monomial" else max(1, int(MAX_ENGINE_BYTES // _cost(kind, shape, n_rows)[1]))


def _cost(kind: str, shape: NetworkShape, n_rows: int) -> tuple[float, float]:
    """Return floating-point operations per step, including a share of the construction, and bytes held."""
    flops, n_bytes = _core.network_cost(kind, *shape.key, n_rows)
    if kind == "tensor":  # products of pairs of inputs with pairs of inputs, summed over the rows
        n_pairs = shape.layers[0][1] * (shape.layers[0][1] + 1) / 2
        flops += 2.0 * n_rows * n_pairs**2 / EXPECTED_STEPS
    return flops, n_bytes
