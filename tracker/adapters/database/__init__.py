"""The database: table versions, leadership, locks, codec."""
