"""What a row or a column did to a prediction: influence, leave-one-out predictions, effects and Shapley values."""

from pydirect.explain.effects import Effect, Effects, effects
from pydirect.explain.rows import LeftOutRows, RowEffects, RowInfluence, compare_left_out
from pydirect.explain.shapley import ShapleyValues, shapley_values

__all__ = [
    "Effect",
    "Effects",
    "LeftOutRows",
    "RowEffects",
    "RowInfluence",
    "ShapleyValues",
    "compare_left_out",
    "effects",
    "shapley_values",
]
