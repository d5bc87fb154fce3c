"""Posterior samples as integers: a fitted posterior in a few bits a weight, and inference with them.

Takes fitted posteriors and knows no training, `budget` apart, which finds the best model of so many bytes.
"""
