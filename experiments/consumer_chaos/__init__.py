"""Faults of members, brokers and topics while a group consumes; then every record is looked for."""
