"""SASL mechanisms, as state machines without I/O, and where OAUTHBEARER's tokens come from."""
