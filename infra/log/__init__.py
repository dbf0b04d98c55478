"""The event log: appends, reads, the digest chain."""
