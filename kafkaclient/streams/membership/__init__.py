"""Membership in a consumer group: the classic protocol, cooperative (KIP-429), also static."""
