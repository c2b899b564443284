"""What the widgets show, as plain values: no ipywidgets, no clock, no file, no await; tested without a browser."""
