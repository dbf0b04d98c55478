"""Search: question, candidates, ranking, answer."""
