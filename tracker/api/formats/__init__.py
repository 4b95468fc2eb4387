"""Results as DataFrames, Arrow batches, files, HTML and plots."""
