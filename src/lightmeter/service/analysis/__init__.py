"""Analyzes the images and videos of requests.

The modules refuse requests if too many pictures are pending, queue pictures for the back ends, and cache and merge the
results.
"""
