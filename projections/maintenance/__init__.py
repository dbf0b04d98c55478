"""What status, doctor, rebuild and forgetting do with each projection."""
