"""Files of earlier versions still open: fixtures of every schema version, and the script that makes one."""
