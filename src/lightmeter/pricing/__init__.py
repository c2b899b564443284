"""Pure money: what a request costs, whether it may be sent, what was learned from charges."""
