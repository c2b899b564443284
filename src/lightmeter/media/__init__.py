"""Decoding of pictures and videos: measures, frame sampling, transforms. No other package imports Pillow or decord."""
