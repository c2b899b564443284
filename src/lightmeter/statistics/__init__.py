"""Computes statistics from the tables of a run.

These are the agreement between back ends, and estimates of the shares of a manifest's images and videos that have a tag
or an NSFW label.
"""
