"""Strangers' files: fetched without reaching private places, decoded within bounds."""
