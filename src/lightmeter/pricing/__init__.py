"""Price tables, estimates, prices learned from charges, and proofs from balances of which requests were charged."""
