"""Every projection of a store, and what status, doctor, rebuild, forgetting and backup do with it."""
