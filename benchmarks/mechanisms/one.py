"""Run one scenario in this environment, and write how it ended: python -m benchmarks.mechanisms.one."""

import json
import logging
import shutil
import sys
import tempfile
import traceback
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from benchmarks.mechanisms.scenarios import SCENARIOS, Result, adapter_named

name, scenario, out = sys.argv[1:]
logging.disable(logging.NOTSET)
made = adapter_named(name)
folder = Path(tempfile.mkdtemp(prefix="mechanisms-"))
try:
    needs_find = scenario not in ("durable", "retry", "as of", "two processes")
    absent = made.find is None and needs_find
    result = Result("absent", {}) if absent else SCENARIOS[scenario](made, folder / "memory", name)
except Exception as error:
    traceback.print_exc()
    result = Result("fails", {}, said=[f"{type(error).__name__}: {str(error)[:200]}"])
finally:
    shutil.rmtree(folder, ignore_errors=True)
Path(out).write_text(json.dumps(asdict(result) | {"version": version(made.package), "how": made.how.get(scenario, "")}))
