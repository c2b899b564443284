"""Faults on purpose: a service that misbehaves as it is told to, so that users and tests can rehearse."""
