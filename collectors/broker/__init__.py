"""Apache Kafka through kafka-python: the only place that imports it."""
