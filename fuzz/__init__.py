"""Fuzzing of every decoder: ``make fuzz``. See ``targets.py`` for what is promised of them."""
