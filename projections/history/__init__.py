"""What the log held at a position."""
