"""The run report: one self-contained HTML page about rows, credits, results, errors and time.

`page.report` writes the page from the Jinja templates of `templates/` and the style sheet `report.css`. `load` fills
the data classes of `model` from the journal and the tables; `charts` draws SVG with matplotlib.
"""
