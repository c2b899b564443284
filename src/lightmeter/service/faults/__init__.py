"""Fault injection: what the service does wrong on purpose, so that users and tests can rehearse failures."""
