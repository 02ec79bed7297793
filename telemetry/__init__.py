"""The words everybody shares: records, catalogues, codec, topics, archive format, ports, errors."""
