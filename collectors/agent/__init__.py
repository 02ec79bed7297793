"""The node agent: one process a node that reads its sources and hands records to a sink."""
