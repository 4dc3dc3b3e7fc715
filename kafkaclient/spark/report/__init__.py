"""The telemetry of many producers and runs, aggregated by Spark."""
