"""Let the README's links lead to the repository, at the tag of this version: a package index shows it alone."""

import json
import re
import tomllib
from pathlib import Path

from setuptools import setup

project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
files = f"{project['urls']['Repository']}/blob/v{project['version']}/"
readme = re.sub(r"\]\((?![a-z]+:|#)", f"]({files}", Path("README.md").read_text())
# An image is shown from its bytes.
readme = re.sub(rf"(!\[[^]]*\]\(){re.escape(files)}", lambda found: found[1] + files.replace("/blob/", "/raw/"), readme)
# A registry of MCP servers looks for its name here.
readme += f"\n<!-- mcp-name: {json.loads(Path('server.json').read_text())['name']} -->\n"
setup(long_description=readme, long_description_content_type="text/markdown")
