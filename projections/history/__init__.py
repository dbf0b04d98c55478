"""What the log held at a position, and whether it still is what was recorded."""
