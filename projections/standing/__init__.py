"""Standing statements: what a user said that should hold for every answer."""
