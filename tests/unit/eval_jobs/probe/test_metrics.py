from eval_jobs.probe.prober import requests_in_flight

PAGE = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="step100-1f"} 2.0
vllm:num_requests_running{engine="1",model_name="step100-1f"} 1.0
vllm:num_requests_waiting{engine="0",model_name="odd } name"} 4.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 9.0
vllm:num_requests_running_total 7
"""


def test_running_and_waiting_are_added_over_all_engines() -> None:
    assert requests_in_flight(PAGE) == 7


def test_gauges_without_labels_are_read_too() -> None:
    assert requests_in_flight("vllm:num_requests_running 3.0 1700000000") == 3


def test_a_page_without_the_gauges_means_idle() -> None:
    assert requests_in_flight("") == 0
    assert requests_in_flight("<html>not found</html>\nvllm:num_requests_running\nvllm:num_requests_waiting{} x") == 0
    assert requests_in_flight("vllm:num_requests_running NaN\nvllm:num_requests_waiting{} +Inf") == 0
