"""The demonstration: flights published to three brokers, one of them slow."""
