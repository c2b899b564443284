"""Copies tables to object stores and other file systems, reads them there, and writes Delta or Iceberg tables."""
