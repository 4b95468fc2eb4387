"""Local data of benchmarks: where it is, its rows, its content's digest."""
