"""The live page of a run, read from its journal."""
