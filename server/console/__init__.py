"""The console: pages of the server that show what an agent knew, and when. Needs the extra `server`."""
