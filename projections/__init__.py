"""Projections of the log: disposable, rebuilt at any time."""
