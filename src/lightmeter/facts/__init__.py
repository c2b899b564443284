"""Answers as facts: what back ends said, read from any shape and packed into columns of bytes. No Arrow here."""
