"""Per-sample results in Parquet."""
