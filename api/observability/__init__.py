"""Telemetry and logging."""
