"""Whole experiments, for import: the runner and its protocols, validation, data sets."""
