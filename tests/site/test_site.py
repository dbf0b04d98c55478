"""The built documentation site: `make docs` runs these tests on it, in the folder that SITE names."""

import os
import re
from pathlib import Path

import pytest

import mnemolog
from mnemolog.cli.app import MODULES
from tests.pages import ROOT, links

pytestmark = pytest.mark.skipif("SITE" not in os.environ, reason="`make docs` builds the site and runs these tests")
SITE = Path(os.environ.get("SITE", "."))
_LOADED = re.compile(
    r"""<(?:script|link|img|source|iframe|object|embed|video|audio)\b[^>]*?\b(?:src|href|data)=["']([^"']+)"""
)
_IN_STYLE = re.compile(r"""(?:@import\s+|url\()\s*["']?((?:https?:)?//[^"')]+)""")


def pages() -> list[Path]:
    """Return the built pages."""
    return sorted(SITE.rglob("*.html"))


def test_the_site_loads_nothing_from_another_host():
    """Scripts, styles, fonts and images lie in the site: it can be read offline, and no host learns who reads it."""
    assert len(pages()) > 50
    loaded = {(page.name, target) for page in pages() for target in _LOADED.findall(page.read_text())}
    assert {(page, target) for page, target in loaded if re.match(r"(https?:)?//", target)} == set()
    styles = {path.name: _IN_STYLE.findall(path.read_text()) for path in SITE.rglob("*.css")}
    assert styles
    assert [found for found in styles.values() if found] == []


def test_every_link_between_pages_leads_to_a_page_and_an_anchor():
    """Also those that Sphinx writes itself."""
    anchors = {page.resolve(): set(re.findall(r'\bid="([^"]+)"', page.read_text())) for page in pages()}
    broken = []
    for page in pages():
        for target in re.findall(r'<a\b[^>]*?\bhref="([^"]+)"', page.read_text()):
            path, _, anchor = target.partition("#")
            if re.match(r"[a-z]+:", path):
                continue
            to = (page.parent / path).resolve() if path else page.resolve()
            if not to.exists() or (anchor and to in anchors and anchor not in anchors[to]):
                broken.append((str(page.relative_to(SITE)), target))
    assert broken == []


def test_every_page_that_the_readme_links_is_in_the_navigation():
    """The first page shows all pages at its side."""
    home = (SITE / "index.html").read_text()
    tree = home[home.index('class="sidebar-tree"') : home.index("</aside>")]
    linked = {str(Path(path).with_suffix(".html")) for path, _ in links("README.md") if path.endswith(".md")}
    assert linked
    assert {page for page in linked if f'href="{page}"' not in tree} == set()


def test_all_pages_are_one_text_for_models():
    """Reports and the changelog are left out: they are long, and answer no question on how to do something."""
    text = (SITE / "llms.txt").read_text()
    assert text.startswith("<!-- README.md -->\n\n# mnemolog")
    for page in ("docs/start.md", "docs/recall.md", "docs/forgetting.md"):
        assert (ROOT / page).read_text() in text


def test_the_search_runs_without_a_server():
    """Its index is a script of the site."""
    assert "Search.setIndex" in (SITE / "searchindex.js").read_text()


def test_the_reference_has_every_public_name_and_every_command():
    """Generated from docstrings and from `--help`."""
    built = {path.stem: path.read_text() for path in (SITE / "docs" / "reference").glob("*.html")}
    for name in set(mnemolog.__all__) - {"errors"}:
        module = "mnemolog.errors" if name in vars(mnemolog.errors) else "mnemolog"
        assert f'id="{module}.{name}"' in "".join(built.values()), name
    for command in MODULES:
        assert f">mnemolog {command}<" in built["command-line"], command


def test_the_site_is_built_from_the_pages_of_the_repository():
    """Each page of the docs folder is a page of the site, at the same path."""
    for page in (ROOT / "docs").rglob("*.md"):
        assert (SITE / page.relative_to(ROOT)).with_suffix(".html").exists(), page
