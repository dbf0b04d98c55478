"""Run commands of a release."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(*command: object, cwd: Path = ROOT) -> None:
    """Run a command. Raises `CalledProcessError` if it fails."""
    subprocess.run([str(word) for word in command], cwd=cwd, check=True)


def output(*command: object) -> str:
    """Run a command in this folder and return what it prints. Raises `CalledProcessError` if it fails."""
    return subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True).stdout
