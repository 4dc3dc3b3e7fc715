"""A member of a classic consumer group: joining, claims, commits; what is assigned is another's."""
