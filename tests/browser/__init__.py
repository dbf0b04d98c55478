"""A real browser looks at the console, as a person would."""
