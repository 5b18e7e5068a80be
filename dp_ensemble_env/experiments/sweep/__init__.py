"""The parts of `dp-ensemble sweep`: cells, grid, backends, cluster, report."""
