"""The domain: events, decisions and value types. Pure, without I/O."""
