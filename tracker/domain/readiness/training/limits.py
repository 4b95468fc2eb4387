"""Facts about limits, memory, disks and the network of a machine -> findings about a training. Pure."""

from collections.abc import Iterator

from tracker.domain.readiness.finding import Finding, error, info, ok, warning
from tracker.domain.readiness.training import facts, fixes
from tracker.domain.readiness.training.facts import UNLIMITED, Host, Memory, Network, Resource, Rlimit, Volume
from tracker.domain.records.display import bytes_text

FEW_LOCKED_BYTES = 8 << 20
"""The kernel's own limit since Linux 5.16, earlier 64 KiB: NCCL cannot register its buffers (nccl-tests#206)."""
FEW_OPEN_FILES, OPEN_FILES = 4096, 65_536
"""Linux starts processes with 1024; PyTorch passes each tensor of a data loader as an open file."""
FEW_PROCESSES = 4096
"""Each rank starts a thread for every core in several libraries."""
SMALL_SHM_BYTES = 1 << 30
"""NCCL's documentation starts containers with this size; Docker's own is 64 MB."""
FEW_INODES = 10_000
SHARED, DISK = "shared memory", "checkpoint disk"
CHECKPOINTS_AHEAD = 2
"""A trainer deletes an old checkpoint only after it has written the next one."""
DEFAULT_PORT = 29_500
"""Of torchrun and of the deepspeed launcher."""


def limit_findings(host: Host) -> Iterator[Finding]:
    """Yield findings about the limits of each process and what this one may do."""
    yield _locked(host)
    yield _open_files(host)
    yield _processes(host)
    yield _clock(host)
    yield _stack_dumps(host)


def shared_memory_finding(volume: Volume | None, host: Host) -> Finding:
    """Return the finding about /dev/shm."""
    if volume is None:
        return ok(SHARED, "not known: /dev/shm cannot be read")
    free = f"{bytes_text(volume.free_bytes)} of {bytes_text(volume.total_bytes)} free"
    if volume.total_bytes < SMALL_SHM_BYTES:
        why = (
            "data loaders exchange batches and NCCL its buffers in /dev/shm: they end with a bus error when it is full"
        )
        return warning(SHARED, f"{free}; {why}", fixes.enlarge_shared_memory(host))
    if volume.free_bytes < SMALL_SHM_BYTES:
        hint = "delete what a killed training left there, after `ls -l /dev/shm`"
        return warning(SHARED, f"{free} in /dev/shm, which data loaders and NCCL need", hint)
    return ok(SHARED, f"{free} in /dev/shm")


def memory_findings(memory: Memory | None, host: Host) -> Iterator[Finding]:
    """Yield findings about memory and swap."""
    if memory is None:
        yield ok("memory", "not known: /proc/meminfo cannot be read")
        return
    available = f"{bytes_text(memory.room_bytes)} available"
    if memory.limit_bytes is not None:
        limit = f"the limit of {memory.limited_at} is {bytes_text(memory.limit_bytes)}"
        yield ok("memory", f"{available}; {limit}, of {bytes_text(memory.total_bytes)}")
    else:
        hint = ""
        if host.has_systemd:
            most = max(1, (memory.available_bytes >> 30) * 9 // 10)
            command = fixes.scope(most, "" if host.is_root else "--user ")
            hint = f"to limit the training and spare other programs, run it as `{command}`"
        yield ok("memory", f"{available} of {bytes_text(memory.total_bytes)}, no limit", hint)
    used = memory.swap_bytes - memory.swap_free_bytes
    if used * 2 > memory.swap_bytes:
        message = f"{bytes_text(used)} of {bytes_text(memory.swap_bytes)} in use; a training that is swapped out stalls"
        yield warning("swap", message, "end programs that use memory, as `ps aux --sort -rss | head` lists them")
    elif memory.swap_bytes:
        yield ok("swap", f"{bytes_text(used)} of {bytes_text(memory.swap_bytes)} in use")
    else:
        yield ok("swap", "none")


def checkpoint_disk_finding(volume: Volume, checkpoint_bytes: int | None, saved_as: str) -> Finding:
    """Return the finding about the disk for checkpoints.

    `saved_as`: the checkpoint that has this size; empty: it is estimated from the model.
    """
    free = f"{volume.folder}: {bytes_text(volume.free_bytes)} free"
    if volume.free_files is not None and volume.free_files < FEW_INODES:
        hint = f"delete small files: `du --inodes -d 2 {volume.folder} | sort -n | tail`"
        judged = warning if volume.free_files else error
        return judged(DISK, f"{free}, but only {volume.free_files} inodes; each file needs one", hint)
    if not volume.is_writable:
        return error(DISK, f"cannot write to {volume.folder}", "correct its permissions, or use another folder")
    if checkpoint_bytes is None:
        return ok(DISK, f"{free}; the size of a checkpoint is not known")
    return _space(volume, f"{free}; a checkpoint has {bytes_text(checkpoint_bytes)}", checkpoint_bytes, saved_as)


def _space(volume: Volume, known: str, checkpoint_bytes: int, saved_as: str) -> Finding:
    message = f"{known}, as {saved_as}" if saved_as else f"{known} with the state of Adam"
    hint = "free space, save to another disk, or save the model without the state of the optimizer"
    if volume.free_bytes < checkpoint_bytes and saved_as:
        return error(DISK, f"{message}: the next one does not fit", hint)
    if volume.free_bytes < CHECKPOINTS_AHEAD * checkpoint_bytes:
        return warning(DISK, f"{message}: the next two do not fit, and trainers delete an old one last", hint)
    return ok(DISK, message)


def workers_finding(workers: int, ranks: int, cores: float, known_from: str = "") -> Finding:
    """Return the finding about the data loaders of all ranks, which have `workers` each."""
    subject = "data loaders"
    message = f"{ranks} x {workers} workers{known_from} on {cores:.3g} cores"
    if workers * ranks <= cores:
        return ok(subject, message)
    hint = f"set dataloader_num_workers to {max(1, int(cores) // ranks)}"
    return warning(subject, f"{message}: they wait for each other", hint)


def network_findings(network: Network) -> Iterator[Finding]:
    """Yield findings about the port and the interface of a job."""
    yield _port(network)
    names = network.socket_ifname
    if not names:
        return
    present = ", ".join(network.interfaces)
    if not network.interfaces:
        yield ok("interface", "not known: /sys/class/net cannot be read")
    elif any(is_selected(one, names) for one in network.interfaces):
        yield ok("interface", f"NCCL_SOCKET_IFNAME={names} selects one of {present}")
    else:
        message = f"NCCL_SOCKET_IFNAME={names} selects none of {present}: NCCL fails to start"
        yield error("interface", message, "`unset NCCL_SOCKET_IFNAME`, or export one of these names")


def is_selected(interface: str, names: str) -> bool:
    """Return whether NCCL would use an interface.

    NCCL_SOCKET_IFNAME is a list of prefixes; `=` in front: of whole names; `^` before all: of those not to use.
    """
    listed = names.removeprefix("^").removeprefix("=").split(",")
    if names.removeprefix("^").startswith("="):
        found = interface in listed
    else:
        found = any(interface.startswith(one) for one in listed)
    return found is not names.startswith("^")


def _port(network: Network) -> Finding:
    text = network.master_port or str(DEFAULT_PORT)
    if not text.isdecimal() or not 0 < int(text) < 1 << 16:
        message = f"MASTER_PORT={text} is no port: no rank can connect"
        return error("port", message, f"export MASTER_PORT={DEFAULT_PORT}")
    if network.listening is None:
        return ok("port", "not known: /proc/net/tcp cannot be read")
    if not network.is_master:
        return ok("port", "MASTER_ADDR is another machine")
    if int(text) not in network.listening:
        return ok("port", f"{text} is free")
    hint = f"end its process, which `ss -ltnp 'sport = :{text}'` names, or use another port"
    if network.master_port:
        return error("port", f"MASTER_PORT={text} is in use: the first rank fails to listen", hint)
    return warning("port", f"{text} is in use, and torchrun and deepspeed use it without another setting", hint)


def _locked(host: Host) -> Finding:
    subject, limit = "locked memory", host.limits.get(Resource.LOCKED)
    if limit is None:
        return _unknown(subject)
    if limit.soft == UNLIMITED or host.may(facts.IPC_LOCK):
        return ok(subject, "unlimited")
    size, hint = bytes_text(int(limit.soft)), fixes.raise_limit(Resource.LOCKED, host)
    if not host.has_infiniband:
        return ok(subject, f"at most {size}; only InfiniBand and deepspeed's offload to NVMe lock more", hint)
    message = f"at most {size}, and InfiniBand locks the buffers of each rank"
    judged = error if limit.soft <= FEW_LOCKED_BYTES and host.nodes > 1 else warning  # alone, NVLink or PCIe is used
    return judged(subject, f"{message}: NCCL cannot register them", hint)


def _open_files(host: Host) -> Finding:
    subject, limit = "open files", host.limits.get(Resource.FILES)
    if limit is None:
        return _unknown(subject)
    if limit.soft >= FEW_OPEN_FILES:
        return ok(subject, _count(limit))
    hint = fixes.raise_limit(Resource.FILES, host, str(OPEN_FILES))
    return warning(
        subject, f"at most {_count(limit)}: data loaders and many ranks fail with `Too many open files`", hint
    )


def _processes(host: Host) -> Finding:
    subject, limit = "processes", host.limits.get(Resource.PROCESSES)
    why = "each rank starts hundreds of threads"
    if host.process_room is not None and host.process_room < FEW_PROCESSES:
        message = f"the cgroup permits {host.process_room:.0f} more, and {why}"
        return warning(subject, message, fixes.raise_tasks(host))
    if host.is_root or host.may(facts.SYS_RESOURCE):
        return ok(subject, "unlimited")
    if limit is None:
        return _unknown(subject)
    if limit.soft >= FEW_PROCESSES:
        return ok(subject, _count(limit))
    hint = fixes.raise_limit(Resource.PROCESSES, host, str(OPEN_FILES))
    return warning(subject, f"at most {_count(limit)} of this user, and {why}", hint)


def _clock(host: Host) -> Finding:
    if host.is_clock_synchronized is None:
        return ok("clock", "not known whether it is synchronized")
    if host.is_clock_synchronized:
        return ok("clock", "synchronized")
    hint = fixes.on_machine(host, "sudo timedatectl set-ntp true")
    if host.nodes > 1:
        return warning("clock", f"not synchronized: logs of {host.nodes} machines cannot be put in order", hint)
    return info("clock", "not synchronized, which matters with several machines", hint)


def _stack_dumps(host: Host) -> Finding:
    if not host.has_py_spy:
        message = "py-spy is not installed: the stacks of a training that hangs cannot be read"
        return ok("stack dumps", message, "run `pip install 'checkpoint-tracker[stacks]'`")
    if host.may(facts.SYS_PTRACE) or host.ptrace_scope == 0:
        return ok("stack dumps", "permitted")
    message = f"kernel.yama.ptrace_scope is {host.ptrace_scope}: the stacks of a training that hangs cannot be read"
    return ok("stack dumps", message, fixes.allow_ptrace(host))


def _unknown(subject: str) -> Finding:
    return ok(subject, "not known: /proc/self/limits cannot be read")


def _count(limit: Rlimit) -> str:
    if limit.soft == UNLIMITED:
        return "unlimited"
    return f"{limit.soft:.0f}"
