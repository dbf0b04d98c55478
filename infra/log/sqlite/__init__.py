"""The log engine on SQLite."""
