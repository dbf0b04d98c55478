"""`store.models`: embedding models."""
