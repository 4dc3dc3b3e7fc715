"""Instances that count keys, their input, and what came out: shared by experiments with streams."""
