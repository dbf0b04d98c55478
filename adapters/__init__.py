"""Integrations with agent frameworks and file formats, one package each. Each needs an extra of its own."""
