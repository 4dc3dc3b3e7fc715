"""A load through one Kafka client or many, and its measurement: what ``perf-test`` runs."""
