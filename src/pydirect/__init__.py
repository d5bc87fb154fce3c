"""placeholder"""
from pydirect.distributions import *
from pydirect.distributions import GaussianPrior, evenly_spaced_levels
from pydirect.statistics import GaussianStatistics
from pydirect.models import fit_mean_field
