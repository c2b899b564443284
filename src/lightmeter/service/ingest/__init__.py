"""Fetches images and videos, from public addresses only, and decodes them within limits; all input is untrusted."""
