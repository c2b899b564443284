"""The front end of notebooks and of the command `lightmeter ui`.

Each page is an ES module (JavaScript) with a Python object behind it, the page's view-model.
"""
