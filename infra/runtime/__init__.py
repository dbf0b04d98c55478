"""Locks, files and process hooks. Imports the standard library and the errors only."""
