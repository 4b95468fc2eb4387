"""What the machine says of a training: messages of the kernel, leaks and GPUs, each reported once."""

from dataclasses import replace

from eval_jobs.records.gpu_health import GpuHealth
from tests.fakes.clock import FakeClock
from tests.fakes.machine import FakeMachine
from tracker.app.health.machine_watch import MachineWatch
from tracker.config.health import load_line_rules
from tracker.domain.health.processes.jobs import Job
from tracker.domain.health.processes.leaks import Usage
from tracker.domain.health.processes.seen import ProcessId, SeenProcess
from tracker.domain.health.run_log import RunLog
from tracker.domain.health.run_state import RunState
from tracker.domain.records.training import TroubleSource

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
        self.run = RunLog(rules=load_line_rules(), state=RunState(run_id="sft"))

    def look(self, seconds: int = 1, job: Job = job(11, 12)) -> list[str]:  # noqa: B008 - frozen
        """Let time pass; return the classes of all trouble so far."""
        for _ in range(seconds):
            self.watch.take(self.run, job, self.clock.now())
            self.clock.advance(1.0)
        episode = self.run.state.episode
        return [] if episode is None else list(episode.first_of)


def test_messages_of_the_kernel_are_lines_of_a_log_if_they_are_about_the_training_or_about_nobody() -> None:
    watched = Watched()
    watched.machine.messages = [(KILLED, 11)]
    assert watched.look(job=Job()) == []  # no training was seen yet
    watched.machine.messages = [(KILLED, 99), ("device eth0 entered promiscuous mode", None)]
    assert watched.look() == []
    watched.machine.messages = [(KILLED, 11), (XID, None)]
    assert watched.look(job=Job()) == ["host_oom", "xid_hardware"]  # it has just ended
    assert [line.stream for line in watched.run.incidents()[0].evidence] == ["kernel", "kernel"]


def test_memory_that_grows_to_its_limit_is_reported_once_and_again_for_another_job() -> None:
    watched = Watched()
    for minute in range(120):
        watched.machine.used = Usage(memory_bytes=(100 << 30) + minute * (1 << 28), memory_limit_bytes=150 << 30)
        found = watched.look(60)
        assert bool(found) == (minute >= 59)
    (incident,) = watched.run.incidents()
    assert (incident.name, incident.lines) == ("memory_leak", 1)
    assert incident.cause.trouble.source is TroubleSource.RESOURCE
    watched.machine.used = Usage()
    assert watched.look(120) == ["memory_leak"]


def test_a_gpu_is_reported_once_and_errors_from_before_the_training_are_none() -> None:
    watched = Watched()
    well = GpuHealth(index=0, uncorrected_ecc_errors=5, temperature_c=60, slowdown_c=90)
    watched.machine.found = (well,)
    assert watched.look(60) == []
    watched.machine.found = (replace(well, uncorrected_ecc_errors=6, temperature_c=95),)
    assert watched.look(300) == ["gpu_memory_errors", "gpu_too_hot"]
    assert watched.run.incidents()[0].lines == 2
    watched.machine.found = (GpuHealth(index=0, is_lost=True),)
    assert watched.look(31) == ["gpu_memory_errors", "gpu_too_hot", "gpu_lost"]
    assert watched.run.incidents()[0].name == "gpu_lost"
