"""Which messages of the kernel concern a training: those about its processes, its GPUs, or none in particular."""

import pytest

from tracker.domain.health.processes.kernel_messages import is_about, pci_place


@pytest.mark.parametrize(
    ("message", "is_ours"),
    [
        ("Out of memory: Killed process 7 (python) total-vm:1kB", True),
        ("Out of memory: Killed process 8 (python) total-vm:1kB", False),
        ("INFO: task python:7 blocked for more than 122 seconds.", True),
        ("INFO: task python:8 blocked for more than 122 seconds.", False),
        ("NVRM: Xid (PCI:0000:c1:00): 31, pid=7, name=python, Ch 00000008", True),
        ("NVRM: Xid (PCI:0000:c1:00): 31, pid=8, name=python, Ch 00000008", False),
        ("NVRM: Xid (PCI:0000:c1:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", True),
        ("python[8]: segfault at 0 ip 00007f sp 00007f error 4 in libtorch.so", False),
        ("EXT4-fs error (device sda1): ext4_find_entry", True),
    ],
)
def test_messages_name_their_process_in_several_forms(message: str, is_ours: bool) -> None:  # noqa: FBT001
    assert is_about(message, {7}) == is_ours


@pytest.mark.parametrize(
    ("message", "is_ours"),
    [
        ("NVRM: Xid (PCI:0000:c1:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", True),
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", False),
        ("NVRM: Xid (0000:3b:00): 48, An uncorrectable double bit error (DBE) has been detected on GPU", False),
        ("NVRM: Xid (PCI:0000:3b:00): 31, pid=7, name=python, Ch 00000008", True),
        ("NVRM: GPU at PCI:0000:C1:00: GPU-8ba16ede", True),
        ("NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.", False),
        ("NVRM: nvidia_frontend: loading", True),
        ("pcieport 0000:3b:00.0: AER: Corrected error received", True),
    ],
)
def test_messages_of_the_driver_count_for_the_gpus_of_the_training(message: str, is_ours: bool) -> None:  # noqa: FBT001
    assert is_about(message, {7}, {pci_place("00000000:C1:00.0")}) == is_ours
