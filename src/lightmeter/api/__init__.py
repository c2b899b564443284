"""What `import lightmeter` offers: plan, run, resume, open, and the results of a run."""
