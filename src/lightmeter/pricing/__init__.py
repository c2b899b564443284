"""Price tables, price estimates, prices learned from charges, and proofs from balances that requests were charged."""
