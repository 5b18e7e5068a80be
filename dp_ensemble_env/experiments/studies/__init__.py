"""Studies of privacy: frontier, regret, attacks, canaries."""
