"""What `import lightmeter` offers: functions to plan, run, resume and open a run, and the classes of their results."""
