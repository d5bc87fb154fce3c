"""The most accurate model that fits into a number of bytes."""
