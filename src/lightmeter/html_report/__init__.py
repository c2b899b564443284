"""The run report: one self-contained HTML page about rows, credits, findings, errors and time.

`render.report` writes the page. `load` fills the data classes of `model` from the journal and the tables, `charts`
draws SVG with matplotlib, and `page` renders the Jinja templates of `templates/` with the style sheet `report.css`.
"""
