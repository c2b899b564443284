"""The gallery of a run: facets, order, selection and saved views."""
