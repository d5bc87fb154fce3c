"""What a row or a column did to a prediction: influence and Shapley values."""

from pydirect.explain.influence import RowEffects, RowInfluence
from pydirect.explain.shapley import ShapleyValues, shapley_values

__all__ = [
    "RowEffects",
    "RowInfluence",
    "ShapleyValues",
    "shapley_values",
]
