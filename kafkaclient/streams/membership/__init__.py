"""Being a member of the application's group, over aiokafka's consumer."""
