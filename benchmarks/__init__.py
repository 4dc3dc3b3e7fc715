"""What is measured side by side with other clients; results are under ``results``."""
