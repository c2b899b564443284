"""Decodes images and videos: metadata, choice of frames, resizing. No other package imports Pillow or decord."""
