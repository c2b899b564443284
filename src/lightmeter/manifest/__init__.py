"""Readers of manifests, the lists of pictures and videos to analyse, in all formats."""
