"""Find and fix what is wrong with a store."""
