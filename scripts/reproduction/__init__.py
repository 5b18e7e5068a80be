"""The parts of `scripts/reproduce_paper.py`: data, row, study, misprints, claims, findings, figures, tables, page."""
