"""Measurements of Tensormorph, as ratios within one run wherever a bound is a ratio: ``python -m benchmarks``."""
