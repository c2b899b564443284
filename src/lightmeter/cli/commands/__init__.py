"""The commands of the command line, one or two in each module."""
