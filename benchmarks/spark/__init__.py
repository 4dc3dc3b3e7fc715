"""``format("kafkaclient")`` beside Spark's own connector, on the same brokers."""
