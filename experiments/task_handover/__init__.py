"""KIP-441's experiment: tasks with state move between instances, with and without the KIP."""
