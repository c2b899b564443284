"""Fetches images and videos, and decodes them.

All input is untrusted. So only public addresses are fetched from, and size, time and memory are limited.
"""
