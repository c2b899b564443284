"""Thumbnails and details of single items, for the views that show pictures."""
