"""The server of `lightmeter ui`."""
