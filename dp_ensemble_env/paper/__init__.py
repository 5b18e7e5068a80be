"""The parts of `dp-ensemble reproduce`: data, what is computed on them, claims and verdicts, figures, page."""
