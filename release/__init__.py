"""Checks of what is released (docs/get-started/install.md), and Kafka versions' lock files."""
