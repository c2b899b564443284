"""Adapters to analysis providers: each turns a picture into that provider's request, and its answer into entries."""
