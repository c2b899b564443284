"""Decoding of pictures and videos: metadata, frame sampling, transforms. No other package imports Pillow or decord."""
