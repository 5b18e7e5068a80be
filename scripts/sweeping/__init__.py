"""The parts of `scripts/sweep.py`: cells, grid, backends, cluster, report."""
