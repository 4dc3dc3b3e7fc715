"""Membership in the application's consumer group, on top of aiokafka's consumer."""
