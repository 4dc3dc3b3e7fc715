# Compiled as it is: 15 % less time for each SyncProducer.send, with all three.
