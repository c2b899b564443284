"""Back ends: what looks at pictures. One protocol, a registry of names, one file for each."""
