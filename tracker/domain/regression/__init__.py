"""The verdict engine: tests of benchmarks for losses, with one error rate over a whole training run. Pure."""
