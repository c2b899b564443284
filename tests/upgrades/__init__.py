"""Files of earlier versions still open: fixtures of their schema versions, and the script that makes one."""
