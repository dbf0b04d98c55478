"""What goes with a release: a wheel that is the same twice, a bill of materials, and files for registries."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from tests.release.commands import ROOT, output, run

WORKFLOW = ".github/workflows/release.yml"
CYCLONEDX, JSONSCHEMA, ZIZMOR, CFFCONVERT = (
    "cyclonedx-bom==7.5.0",
    "check-jsonschema==0.39.0",
    "zizmor==1.32.0",
    "cffconvert==2.0.0",
)


def build(folder: Path) -> tuple[Path, Path]:
    """Build sdist and wheel twice, with the time of the last commit, and return both. Raises if the wheels differ."""
    os.environ["SOURCE_DATE_EPOCH"] = output("git", "-C", ROOT, "log", "-1", "--format=%ct").strip()
    digests = set()
    for dist in (folder.with_name("again"), folder):
        run("uv", "build", "-q", "--out-dir", dist, ROOT)
        (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
        digests.add(hashlib.sha256(wheel.read_bytes()).hexdigest())
    assert len(digests) == 1, f"two builds of one commit differ: {wheel.name}"
    return wheel, sdist


def bill_of_materials(inside: Path, file: Path) -> None:
    """Write what an environment holds, every package with its version and licence, as CycloneDX 1.6."""
    command = ("cyclonedx-py", "environment", "--pyproject", ROOT / "pyproject.toml", "--output-reproducible")
    run("uv", "tool", "run", "--from", CYCLONEDX, *command, "--spec-version", "1.6", "-o", file, inside)
    found = json.loads(file.read_text())
    assert found["metadata"]["component"]["name"] == "mnemolog"
    assert {"sqlalchemy", "faiss-cpu", "msgspec"} <= {item["name"].lower() for item in found["components"]}


def check_files(project: dict[str, Any]) -> None:
    """Check the files for others. Raises if one is not valid, or says another version or address than the project."""
    run("uv", "tool", "run", JSONSCHEMA, "--builtin-schema", "vendor.github-workflows", ROOT / WORKFLOW)
    run("uv", "tool", "run", ZIZMOR, "--offline", "--pedantic", "--quiet", ROOT / WORKFLOW)
    run("uv", "tool", "run", CFFCONVERT, "--validate", "-i", ROOT / "CITATION.cff")
    cited = (ROOT / "CITATION.cff").read_text()
    server = json.loads((ROOT / "server.json").read_text())
    (package,) = server["packages"]
    (extras,) = package["runtimeArguments"]
    address = project["urls"]["Repository"]
    assert server["version"] == package["version"] == project["version"]
    assert extras["value"] == f"mnemolog[mcp,minilm]=={project['version']}"
    assert server["websiteUrl"] == address
    assert f"\nversion: {project['version']}\n" in cited
    assert f"\nrepository-code: {address}\n" in cited


def start_as_registries_do(dist: Path) -> None:
    """Run the command that a client makes of server.json, with the wheel in place of the package index, to its help."""
    (package,) = json.loads((ROOT / "server.json").read_text())["packages"]
    given = [
        word for item in package["runtimeArguments"] for word in (item["name"], item["value"].replace(",minilm", ""))
    ]
    fixed = [item["value"] for item in package["packageArguments"] if "value" in item]
    program = f"{package['identifier']}@{package['version']}"
    shown = output("uv", "tool", "run", "--find-links", dist, *given, program, *fixed, "--help")
    assert shown.startswith("Usage: mnemolog mcp")
