"""Decode images and videos: read metadata, choose frames, shrink, compare and measure pictures."""
