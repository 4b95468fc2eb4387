"""The database: tables' versions, leadership, locks, codec."""
