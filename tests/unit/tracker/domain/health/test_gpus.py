"""What one reading of a GPU says is wrong, and what it does not."""

from dataclasses import replace

from eval_jobs.records.gpu_health import GpuHealth, ThrottleReason
from tracker.domain.health.gpus import gpu_findings

WELL = GpuHealth(index=3, temperature_c=91, slowdown_c=92, power_w=700.0, power_limit_w=700.0, uncorrected_ecc_errors=0)


def reading(**changed: object) -> GpuHealth:
    return replace(WELL, **changed)  # type: ignore[arg-type]


def throttled(*reasons: ThrottleReason) -> GpuHealth:
    return reading(throttle_reasons=reasons)


def test_only_what_needs_somebody_at_the_machine_is_a_finding() -> None:
    slowdown = ThrottleReason.HW_SLOWDOWN
    cases = [
        (GpuHealth(index=3), None),
        (WELL, None),
        (reading(temperature_c=99, slowdown_c=None), None),
        (reading(temperature_c=99, slowdown_c=0), None),
        (throttled(ThrottleReason.SW_POWER_CAP, ThrottleReason.SW_THERMAL), None),
        (throttled(slowdown), None),
        (reading(temperature_c=92), ("gpu_too_hot", "GPU 3 is at 92 °C; from 92 °C it halves its clocks")),
        (
            throttled(slowdown, ThrottleReason.HW_THERMAL),
            ("gpu_slowed", "GPU 3 halves its clocks, because it is too hot"),
        ),
        (
            throttled(slowdown, ThrottleReason.HW_POWER_BRAKE),
            ("gpu_slowed", "GPU 3 halves its clocks, because the power supply asks for it"),
        ),
        (
            reading(uncorrected_ecc_errors=1200),
            ("gpu_memory_errors", "GPU 3 has 1,200 uncorrected memory errors"),
        ),
        (
            reading(uncorrected_ecc_errors=1),
            ("gpu_memory_errors", "GPU 3 has 1 uncorrected memory error"),
        ),
        (GpuHealth(index=3, is_lost=True), ("gpu_lost", "GPU 3 is lost: its driver cannot reach it")),
    ]
    for found, expected in cases:
        findings = gpu_findings(found)
        assert [(one.name, one.sentence) for one in findings] == ([] if expected is None else [expected])
        assert all(one.hint and one.gpu == 3 for one in findings)


def test_memory_errors_from_before_the_training_are_no_finding() -> None:
    found = reading(uncorrected_ecc_errors=7)
    assert gpu_findings(found, known_errors=7) == ()
    (new,) = gpu_findings(found, known_errors=5)
    assert new.sentence == "GPU 3 has 2 uncorrected memory errors"


def test_several_things_can_be_wrong_at_once() -> None:
    found = reading(temperature_c=95, throttle_reasons=(ThrottleReason.HW_THERMAL,), uncorrected_ecc_errors=2)
    assert [one.name for one in gpu_findings(found)] == ["gpu_memory_errors", "gpu_too_hot", "gpu_slowed"]
