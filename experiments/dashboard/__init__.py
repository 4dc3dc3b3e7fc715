"""The pictures of the Grafana dashboard and of ``kafkaclient top``, made without Grafana."""
