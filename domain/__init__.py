"""What the project is about: events, decisions, value types. Pure, no I/O."""
