"""One self-contained HTML page about a run: what came of every row, where every credit went, and what was found.

`writing` is the way in. `gathering` asks journal and tables, `facts` is what it finds, `charts` draws with matplotlib,
`sections` and `page` are HTML, `style` is how it looks.
"""
