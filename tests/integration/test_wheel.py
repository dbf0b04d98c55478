"""The wheel as it is built from the checkout. `make release-check` installs it with other versions of what it needs."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.pages import ROOT

pytestmark = pytest.mark.local
NO_BYTECODE = shutil.ignore_patterns("__pycache__", "*.egg-info")


def test_a_built_wheel_holds_every_file_of_the_package_and_has_help_for_every_command(tmp_path):
    """The commands run from the wheel, not from the checkout."""
    linked = [path.resolve().name for path in (ROOT / "api").iterdir() if path.is_symlink()]
    for folder in ("api", "src", *linked):
        shutil.copytree(ROOT / folder, tmp_path / folder, symlinks=True, ignore=NO_BYTECODE)
    for name in ("LICENSE", "README.md", "pyproject.toml", "server.json", "setup.py"):
        shutil.copy(ROOT / name, tmp_path)
    build = "import setuptools.build_meta as backend; backend.build_wheel('.')"
    subprocess.run([sys.executable, "-c", build], cwd=tmp_path, capture_output=True, check=True)
    with zipfile.ZipFile(*tmp_path.glob("*.whl")) as wheel:
        wheel.extractall(tmp_path / "installed")
    for folder in ("api", *linked):
        inside = Path("mnemolog", folder if folder != "api" else "")
        files = {path.relative_to(tmp_path / folder) for path in (tmp_path / folder).rglob("*") if path.is_file()}
        assert {path for path in files if not (tmp_path / "installed" / inside / path).is_file()} == set(), folder
    script = ROOT / "tests" / "release" / "first_use.py"
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "installed")}
    subprocess.run([sys.executable, script, "-", "-", "--help-only"], cwd=tmp_path, env=environment, check=True)
