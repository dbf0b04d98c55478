"""SQLite, models, clocks: what meets the outside world."""
