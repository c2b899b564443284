"""Untrusted input: fetches assets from public addresses only, and decodes them within limits."""
