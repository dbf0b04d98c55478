"""What status, doctor, rebuild, forgetting and backup do with each projection."""
