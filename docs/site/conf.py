"""Settings of Sphinx for the documentation site: `make docs`, ADR 27.

The pages are read where they lie, so that their links work on the site as in the repository. Navigation comes from the
headings and links of docs/README.md, and below them of the pages in INDEXES. The reference is written before each
build, by `reference.py` beside this file.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any

from sphinx.pycode import ModuleAnalyzer

import mnemolog

SITE = Path(__file__).parent
ROOT = SITE.parents[1]
sys.path.insert(0, str(SITE))

import reference  # noqa: E402 - it lies beside this file, which Sphinx executes from elsewhere

project = "mnemolog"
copyright = "the authors of mnemolog, Apache-2.0"  # noqa: A001 - Sphinx reads this name.
html_title = "mnemolog"
root_doc = "README"
LINKED = [path.name for path in (ROOT / "api").iterdir() if path.is_symlink()]
include_patterns = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs/**.md", "docs/reference/*.rst"]
exclude_patterns = [".*", "build", "src", "tests", "benchmarks", "api", *LINKED]
extensions = ["myst_parser", "sphinx.ext.autodoc"]

myst_heading_anchors = 4
myst_links_external_new_tab = False
myst_fence_as_directive: set[str] = set()

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True, "undoc-members": True, "inherited-members": False}
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
default_role = "py:obj"  # `name` in a docstring: a link if something has that name, otherwise just code.

html_theme = "furo"
html_static_path: list[str] = []
html_copy_source = False
html_show_sourcelink = False
highlight_language = "text"
suppress_warnings = ["ref.python"]  # `bytes` in an annotation is a type; results also have fields of that name.

_GROUP = re.compile(r"^## (.+)\n\n((?:(?:-|\d\.) .*\n(?:  .*\n)*)+)", re.MULTILINE)
_LINK = re.compile(r"^(?:-|\d\.) \[([^]]*)\]\(([^)#]+)\)", re.MULTILINE)
INDEXES = ("CONTRIBUTING", "docs/reports/README")
"""Pages with lists of pages for contributors."""


def navigation(index: str = "docs/README") -> dict[str, list[str]]:
    """Return the pages that a page lists, by heading, as Sphinx writes them: `title <page>`."""
    page = ROOT / f"{index}.md"
    return {
        heading: [
            f"{title} </{(page.parent / target).resolve().relative_to(ROOT).with_suffix('')}>"
            for title, target in _LINK.findall(links)
        ]
        for heading, links in _GROUP.findall(page.read_text())
        if _LINK.search(links)
    }


def _add_navigation(app: Any, name: str, source: list[str]) -> None:
    if name == root_doc:
        groups = navigation()
        groups["Reference"] = [*reference.PAGES, *groups["Reference"]]
        source[0] += "".join(_toctree(pages, caption=heading) for heading, pages in groups.items())
        source[0] += _toctree(["docs/README"])
    elif name in INDEXES:
        source[0] += "".join(_toctree(pages) for pages in navigation(name).values())
    elif name in ("docs/adr/README", "docs/adapters/README"):
        folder = ROOT / Path(name).parent
        source[0] += _toctree(sorted(f"/{folder.relative_to(ROOT)}/{p.stem}" for p in folder.glob("[a-z0-9]*.md")))


def _toctree(pages: list[str], *, caption: str = "") -> str:
    return "\n".join(
        ["\n\n```{toctree}", ":hidden:", *([f":caption: {caption}"] if caption else []), "", *pages, "```\n"]
    )


def _make_index(app: Any, error: Exception | None) -> None:
    if error is None and app.builder.name == "html":
        shutil.copyfile(app.outdir / "README.html", app.outdir / "index.html")


def _make_llms_txt(app: Any, error: Exception | None) -> None:
    """Write the pages as one text, in the order of the navigation: https://llmstxt.org."""
    if error is None and app.builder.name == "html":
        groups = [lines for index in ("docs/README", *INDEXES) for lines in navigation(index).values()]
        listed = [line.partition("</")[2].rstrip(">") for lines in groups for line in lines]
        pages = [
            ROOT / f"{page}.md" for page in ["README", *listed] if "/reports/" not in page and "CHANGELOG" not in page
        ]
        texts = [f"<!-- {page.relative_to(ROOT)} -->\n\n{page.read_text()}" for page in pages]
        (app.outdir / "llms.txt").write_text("\n\n".join(texts))


def _hide_constructor(app: Any, what: str, name: str, value: Any, options: Any, signature: str, returns: str) -> Any:
    """Leave out the arguments of classes: the fields of a result say the same, and the store makes the others."""
    return ("", None) if signature and what in ("class", "exception") else None


def _read_docstring(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Link the pages that a docstring names, and show its indented blocks as they are written."""
    lines[:] = [re.sub(r"(?<!`)\bdocs/([\w/-]+)\.md", r":doc:`/docs/\1`", line) for line in lines]
    for number in range(len(lines) - 2, -1, -1):
        before, after = lines[number - 1] if number else "", lines[number + 1]
        if not lines[number] and after.startswith("    ") and before and not before.startswith((" ", "-")):
            lines[number:number] = ["", "::"]


def _link_error(app: Any, env: Any, node: Any, text: Any) -> Any:
    """Link the name of an error to the page of errors, from everywhere."""
    name = node["reftarget"].rpartition(".")[2]
    if node.get("refdomain") != "py" or not hasattr(mnemolog.errors, name):
        return None
    return env.get_domain("py").resolve_xref(
        env, node["refdoc"], app.builder, "obj", f"mnemolog.errors.{name}", node, text
    )


def _read_homes() -> None:
    """Let Sphinx find the comments of fields, and their order, for classes that say where users import them from."""
    for module in (mnemolog, mnemolog.types):
        shown = ModuleAnalyzer.for_module(module.__name__)
        shown.analyze()
        for home in {*module._HOMES.values()}:
            found = ModuleAnalyzer.for_module(f"mnemolog.{home}")
            found.analyze()
            shown.attr_docs |= found.attr_docs
            shown.tagorder |= found.tagorder


def setup(app: Any) -> None:
    """Write the reference, and add the navigation."""
    reference.write(ROOT)
    _read_homes()
    app.connect("autodoc-process-docstring", _read_docstring)
    app.connect("autodoc-process-signature", _hide_constructor)
    app.connect("missing-reference", _link_error)
    app.connect("source-read", _add_navigation)
    app.connect("build-finished", _make_index)
    app.connect("build-finished", _make_llms_txt)
