"""The console of the server, without a browser."""
