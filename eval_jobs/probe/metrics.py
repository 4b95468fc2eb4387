"""Reads the two gauges of vLLM's /metrics that count requests in flight. Pure."""

GAUGES = ("vllm:num_requests_running", "vllm:num_requests_waiting")


def requests_in_flight(text: str) -> int:
    """Return the number of running and waiting requests of all engines, from Prometheus text; 0 without the gauges."""
    return round(sum(_value(line) for line in text.splitlines() if _name(line) in GAUGES))


def _name(line: str) -> str:
    return line.partition("{")[0].partition(" ")[0]


def _value(line: str) -> float:
    try:
        return float(line.rpartition("}")[2].split()[0 if "}" in line else 1])
    except (ValueError, IndexError):
        return 0.0
