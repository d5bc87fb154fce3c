"""Errors and warnings of integer arithmetic."""


class IntegerArithmeticError(ValueError):
    """A model has no integer-only form; the message names a similar model that has one."""


class IntegerArithmeticWarning(UserWarning):
    """Integer arithmetic clips inputs or changes predictions at rows of X; the message says where and what helps."""


class AccumulatorOverflowError(ValueError):
    """A sum of the integer arithmetic could overflow its type."""
