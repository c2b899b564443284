"""Notebook views over pipeline events and tables."""
