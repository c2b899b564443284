"""These modules hold price tables, estimate prices, learn prices from charges, and infer charges from balances."""
