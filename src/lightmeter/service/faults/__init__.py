"""Fault injection: faults that the service makes on purpose, so that users and tests can rehearse failures."""
