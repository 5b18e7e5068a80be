"""Whole experiments, for import: comparison, validation, data sets, sweeps, the paper's case study."""
