"""Benchmarks of pydirect; importing the package pins the number of threads before NumPy starts any."""

from . import common as common
