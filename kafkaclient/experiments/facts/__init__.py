"""The report on telemetry: what Spark has aggregated, as a summary, tables and a page."""
