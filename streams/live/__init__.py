"""The live driver: Faust over Apache Kafka around the fold. The only place that imports them."""
