"""The front end of notebooks and `lightmeter ui`: ES modules, and a Python object (view-model) for each."""
