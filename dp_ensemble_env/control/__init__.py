"""The mathematics: the linearly-solvable recursion, its policies, couplings and the cost of privacy."""
