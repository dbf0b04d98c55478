"""`store.admin`: status, rebuild, backup, doctor."""
