"""How fast records leave Python for Kafka, by this client and by others: ``make bench``.

All clients send to the same local broker in turn, each run in a process of its own. ``entries``
says what is run, ``targets`` what is hoped for; ``worker`` is the process that sends.
"""
