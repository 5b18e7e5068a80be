"""What a draw costs, and what draws cost together."""
