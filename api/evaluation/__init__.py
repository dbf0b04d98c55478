"""Measure recall: questions whose answers are known, what rankings of them are worth, and how sure that is."""
