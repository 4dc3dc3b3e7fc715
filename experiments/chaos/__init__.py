"""The campaign: records are sent under a schedule of faults, then looked for in the log."""
