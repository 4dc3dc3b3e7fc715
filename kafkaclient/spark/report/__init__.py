"""Aggregates the telemetry of many producers and runs with Spark."""
