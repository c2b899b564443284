"""Tables in object stores and other remote file systems, and Delta Lake tables."""
