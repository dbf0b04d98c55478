"""The folders at the root become one import name: wheel and sdist hold every module once (ADR 49)."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("domain", "infra", "projections", "cli", "server", "adapters")
BUILD = "from setuptools import build_meta as b; print(b.build_wheel('out'), b.build_sdist('out'))"


def files_of(folder: str) -> set[Path]:
    """The files of a room, but for compiled ones."""
    return {path.relative_to(ROOT) for path in (ROOT / folder).rglob("*") if path.is_file() and path.suffix != ".pyc"}


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """Build wheel and sdist from a copy, so that nothing is written into the checkout."""
    copy = tmp_path_factory.mktemp("copy")
    for name in ("src", "api", *ROOMS):
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    subprocess.run([sys.executable, "-c", BUILD], cwd=copy, check=True, capture_output=True)
    return copy / "out"


def test_the_wheel_holds_every_file_of_every_room_once(built):
    """A module that is reached by two paths would be imported twice."""
    (wheel,) = built.glob("*.whl")
    names = Counter(Path(name) for name in zipfile.ZipFile(wheel).namelist() if not name.split("/")[0].endswith("info"))
    expected = {Path("mnemolog", path.relative_to("api")) for path in files_of("api")}
    expected |= {Path("mnemolog", path) for room in ROOMS for path in files_of(room)}
    assert names == Counter(expected)


def test_the_sdist_holds_every_module(built):
    """What is built from it is the same wheel."""
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {Path(*Path(name).parts[1:]) for name in archive.getnames()}
    assert {Path("src/mnemolog", path) for room in ROOMS for path in files_of(room) if path.suffix == ".py"} <= names
