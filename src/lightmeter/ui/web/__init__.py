"""The web server of `lightmeter ui`, which shows a run in the browser of this machine."""
