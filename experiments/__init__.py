"""Measurements on real brokers, against other Kafka clients: ``python -m experiments --help``."""
