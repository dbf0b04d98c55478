"""The server: a store behind HTTP, with tokens. Needs the extra `server`."""
