"""Results that other programs measured: their files -> records of ours. Pure: documents in, records out."""
