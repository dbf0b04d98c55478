"""Context for a prompt: what to show of a memory within a budget of tokens."""
