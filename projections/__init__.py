"""Readings of the log: disposable, rebuilt at will."""
