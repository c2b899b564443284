"""Prices without I/O: price tables, estimates, prices learned from charges, and proofs from account balances."""
