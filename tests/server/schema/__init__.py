"""The server's API against its own description."""
