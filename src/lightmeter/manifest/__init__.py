"""What the user wants analysed: rows, their stable ids, readers for every format, URL identity."""
