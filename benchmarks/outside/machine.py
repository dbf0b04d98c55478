"""What the machine is, for pages."""

import os
import platform
from pathlib import Path


def machine() -> str:
    """Return what the machine is, in general terms."""
    named = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return f"{os.cpu_count()} cores, {named[0].partition(': ')[2] if named else platform.machine()}"
