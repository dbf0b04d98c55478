"""Infrastructure: the event log, keys, SQLite, embedding models and the operating system."""
