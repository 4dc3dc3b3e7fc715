"""A worker of the OpenMessaging Benchmark over this client."""
