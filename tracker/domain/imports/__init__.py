"""Import of results measured by other programs. Pure: documents in, records out."""
