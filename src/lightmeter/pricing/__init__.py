"""Price tables, price estimates, learning prices from charges, proving from balances which requests were charged."""
