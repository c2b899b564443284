"""Readers of manifests, the lists of pictures and videos to analyze, in all formats."""
