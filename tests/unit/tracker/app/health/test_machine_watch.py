"""What the machine says of a training: messages of the kernel, leaks and GPUs, each reported once."""

from dataclasses import replace

from eval_jobs.records.gpu_health import GpuHealth, GpuMemory
from tests.fakes.clock import FakeClock
from tests.fakes.machine import FakeMachine
from tracker.app.health.machine_watch import MachineWatch
from tracker.config.health import load_rules
from tracker.domain.health.processes.jobs import Job
from tracker.domain.health.processes.leaks import Usage
from tracker.domain.health.processes.seen import ProcessId, SeenProcess
from tracker.domain.health.run_log import RunLog
from tracker.domain.health.run_state import RunState
from tracker.domain.records.training import IncidentEnd, TrainingIncident, TroubleSource

KILLED = "Memory cgroup out of memory: Killed process 11 (python) total-vm:9kB, anon-rss:8kB"
XID = "NVRM: Xid (PCI:0000:c1:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def job(*pids: int) -> Job:
    ranks = {
        rank: SeenProcess(id=ProcessId(pid=pid, created_s=1.0), parent=1, name="python")
        for rank, pid in enumerate(pids)
    }
    return Job(ranks=ranks)


class Watched:
    def __init__(self) -> None:
        self.machine, self.clock = FakeMachine(), FakeClock()
        self.watch = MachineWatch(machine=self.machine)
        self.run = RunLog(rules=load_rules().lines, state=RunState(run_id="sft"))

    def look(self, seconds: int = 1, job: Job = job(11, 12)) -> list[str]:  # noqa: B008 - frozen
        """Let time pass; return the classes of all trouble so far."""
        for _ in range(seconds):
            self.watch.take(self.run, job, self.clock.now())
            self.clock.advance(1.0)
        episode = self.run.state.episode
        return [] if episode is None else list(episode.first_of)

    def found(self) -> tuple[TrainingIncident, ...]:
        return self.run.incidents()


def test_messages_of_the_kernel_are_lines_of_a_log_unless_they_are_about_other_processes() -> None:
    watched = Watched()
    watched.machine.messages = [(KILLED, 11)]
    assert watched.look(job=Job()) == []  # no training was seen yet
    watched.machine.messages = [(KILLED, 99), ("device eth0 entered promiscuous mode", None)]
    assert watched.look() == []
    watched.machine.messages = [(KILLED, 11), (XID, None)]
    assert watched.look(job=Job()) == ["host_oom", "xid_hardware"]  # it has just ended
    assert [line.stream for line in watched.run.incidents()[0].evidence] == ["kernel", "kernel"]


def test_memory_that_grows_to_its_limit_is_one_incident_that_ends_when_it_no_longer_grows() -> None:
    watched = Watched()
    for minute in range(300):
        used = (100 << 30) + min(minute, 200) * (1 << 28)
        watched.machine.used = Usage(memory_bytes=used, memory_limit_bytes=150 << 30)
        watched.look(60)
        if minute in (118, 199):
            assert [one.name for one in watched.found()] == (["memory_leak"] if minute == 199 else [])
    (incident,) = watched.run.incidents()
    assert (incident.name, incident.ended_by) == ("memory_leak", IncidentEnd.RECOVERED)
    assert incident.cause.trouble.source is TroubleSource.RESOURCE
    assert "which it reaches in" in incident.cause.text


def test_the_memory_of_each_gpu_is_followed_and_shown_in_a_table() -> None:
    watched = Watched()
    for minute in range(130):
        steady = GpuHealth(index=0, busy_pct=97.0, memory=GpuMemory(used_bytes=70 << 30, total_bytes=80 << 30))
        used = (40 << 30) + minute * (1 << 28)
        watched.machine.found = (steady, GpuHealth(index=1, memory=GpuMemory(used_bytes=used, total_bytes=80 << 30)))
        watched.look(60)
    (incident,) = watched.run.incidents()
    assert (incident.name, incident.is_over) == ("gpu_memory_leak", False)
    assert watched.watch.gpu_table().splitlines() == [
        "GPU   busy   memory used   temperature",
        "0      97 %      70.0 GiB             ?",
        "1         ?      72.2 GiB             ?",
    ]


def test_a_gpu_is_an_incident_after_two_readings_and_errors_from_before_the_training_are_none() -> None:
    watched = Watched()
    well = GpuHealth(index=0, uncorrected_ecc_errors=5, temperature_c=60, slowdown_c=90)
    hot = replace(well, uncorrected_ecc_errors=6, temperature_c=95)
    for gpu, names in (
        (well, []),
        (hot, []),
        (well, []),
        (hot, []),
        (hot, ["gpu_memory_errors", "gpu_too_hot"]),
        (hot, ["gpu_memory_errors", "gpu_too_hot"]),
        (replace(hot, temperature_c=80), ["gpu_memory_errors"]),
        (GpuHealth(index=0, is_lost=True), []),
        (GpuHealth(index=0, is_lost=True), ["gpu_lost"]),
    ):
        watched.machine.found = (gpu,)
        watched.look(30)
        assert sorted(one.name for one in watched.found() if not one.is_over) == names
    ended = [one.name for one in watched.found() if one.ended_by is IncidentEnd.RECOVERED]
    assert sorted(ended) == ["gpu_memory_errors", "gpu_too_hot"]
    restarted = Watched()
    restarted.run = RunLog(rules=(), state=watched.run.state)
    restarted.machine.found = watched.machine.found
    restarted.look(120)
    assert [one.id for one in restarted.found()] == [one.id for one in watched.found() if not one.is_over]


def test_a_restarted_agent_keeps_what_lasts_until_it_knows_better() -> None:
    watched = Watched()
    broken = GpuHealth(index=0, uncorrected_ecc_errors=5)
    watched.machine.found = (replace(broken, uncorrected_ecc_errors=3),)
    for minute in range(200):
        watched.machine.used = Usage(memory_bytes=(100 << 30) + minute * (1 << 28), memory_limit_bytes=160 << 30)
        watched.look(60)
        watched.machine.found = (broken,)
    names = ["gpu_memory_errors", "memory_leak"]
    assert sorted(one.name for one in watched.found()) == names
    again = Watched()
    again.run = RunLog(rules=(), state=watched.run.state)
    again.machine.used, again.machine.found = watched.machine.used, ()  # the driver does not respond
    again.look(60)
    again.machine.found = (broken,)
    again.look(60)
    assert sorted(one.name for one in again.found() if not one.is_over) == names
    again.look(60 * 130)  # it no longer grows
    over = [one for one in again.found() if one.is_over]
    assert [(one.name, one.ended_by) for one in over] == [("memory_leak", IncidentEnd.RECOVERED)]


def test_nothing_that_is_measured_of_a_job_outlasts_it() -> None:
    watched = Watched()
    hot = GpuHealth(index=0, temperature_c=95, slowdown_c=90)
    watched.machine.found = (hot,)
    watched.look(60)
    assert [one.name for one in watched.found()] == ["gpu_too_hot"]
    watched.look(job=Job())
    assert [one.is_over for one in watched.found()] == [False], "it was not found, and may be there"
    watched.run.state.pace.ended = "finished"
    watched.look(job=Job())
    assert [one.ended_by for one in watched.found()] == [IncidentEnd.ENDED]
    watched.look(60, job=job(21, 22))
    assert [one.is_over for one in watched.found()] == [True, False]
    watched.machine.found = (replace(hot, temperature_c=60),)
    watched.look(job=job(31, 32))
    assert [one.ended_by for one in watched.found()] == [IncidentEnd.ENDED] * 2, "of another job"
