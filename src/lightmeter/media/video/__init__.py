"""Reads videos: decodes them in a child process, takes frames at intervals, and finds frames that differ."""
