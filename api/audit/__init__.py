"""`store.audit`: verify, compare, export, import."""
