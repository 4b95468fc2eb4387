"""A process whose NVIDIA driver is `fake_nvml.c`: `said_with_driver(folder, "LOST", PROGRAM)`."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.requires import requires_binary, requires_package


def said_with_driver(folder: Path, driver: str, program: str) -> Any:
    """Return the JSON that a Python program prints with this driver; its library is built in `folder`."""
    requires_package("nvidia-ml-py")
    source, library = Path(__file__).with_name("fake_nvml.c"), folder / "libnvidia-ml.so.1"
    compiler = str(requires_binary("gcc"))
    subprocess.run([compiler, "-shared", "-fPIC", f"-D{driver}", "-o", library, source], check=True)
    environment = os.environ | {"LD_LIBRARY_PATH": str(folder)}
    return json.loads(subprocess.check_output([sys.executable, "-c", program], env=environment))
