"""Reads videos: decoding in a child process, frames to sample, and frames that differ."""
