"""View-models and ES modules of the front end, which notebooks and `lightmeter ui` share."""
