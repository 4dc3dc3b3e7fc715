"""Faults of instances and brokers while an application counts exactly once."""
