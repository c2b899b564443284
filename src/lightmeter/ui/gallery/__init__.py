"""The gallery page, which shows the images and videos of a run: filters, order, selection and saved views."""
