"""The campaign: records under a schedule of faults, then every record looked for in the log."""
