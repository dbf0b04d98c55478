"""Whether projections match the log, and quarantine for those that do not."""
