"""Faults of Spark and of brokers while a streaming query copies a topic."""
