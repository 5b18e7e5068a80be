"""The parts of `scripts/reproduce_paper.py`: data, what is computed on them, claims and verdicts, figures, page."""
