"""Use cases that run under the write lock."""
