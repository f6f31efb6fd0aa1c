"""The documentation site: links and anchors hold, and a page loads nothing from other hosts."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOADED = re.compile(
    r'<(?:script|img|iframe)[^>]+src="https?:[^"]*"|<link[^>]+rel="(?:stylesheet|preconnect)"[^>]*https?:'
)
PARTS = ("tutorial/first.md", "how-to/ask.md", "reference/options.md", "explanation/why.md", "contributing/setup.md")

pytest.importorskip("material", reason="the site is built with mkdocs-material: run `make setup`")


def build(root: Path, into: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(into)]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A project with the site's settings, a page for each part of docs/, and a Mermaid."""
    for name in ("mkdocs.yml", "mkdocs_hooks.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    for name in ("index.md", "glossary.md", *PARTS):
        page = tmp_path / "docs" / name
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(f"# Page of {name}\n")
    (tmp_path / "build" / "mermaid").mkdir(parents=True)
    (tmp_path / "build" / "mermaid" / "mermaid.min.js").touch()
    return tmp_path


def test_the_site_builds_and_loads_nothing_from_other_hosts(tmp_path: Path) -> None:
    done = build(ROOT, tmp_path)
    assert done.returncode == 0, done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 5
    assert [hit for page in pages for hit in LOADED.findall(page.read_text("utf-8"))] == []


@pytest.mark.slow
def test_parts_come_from_a_newcomers_to_a_maintainers(small: Path) -> None:
    assert build(small, small / "site").returncode == 0
    links = re.findall(r'href="([^"#]+)" class="md-nav__link[^"]*"', (small / "site" / "index.html").read_text("utf-8"))
    expected = ["index.html", *PARTS[:4], "glossary.md", PARTS[4]]
    assert list(dict.fromkeys(links)) == [name.replace(".md", ".html") for name in expected]


@pytest.mark.slow
def test_each_broken_link_fails_the_build(small: Path) -> None:
    links = ["no.md", "glossary.md#no", "#no", "../no.py", "/glossary.md"]
    (small / "docs" / "index.md").write_text("# Home\n\n" + "".join(f"[broken]({link})\n" for link in links))
    done = build(small, small / "site")
    assert done.returncode == 1
    assert [link for link in links if f"'{link}'" not in done.stderr] == []


@pytest.mark.slow
def test_a_link_out_of_the_docs_needs_the_repositorys_address(small: Path) -> None:
    page = small / "site" / "index.html"
    (small / "LICENSE").touch()
    (small / "docs" / "index.md").write_text("# Home\n\n[the license](../LICENSE)\n")
    assert build(small, small / "site").returncode == 0
    assert "<p>the license</p>" in page.read_text("utf-8")
    with (small / "mkdocs.yml").open("a") as settings:
        settings.write("repo_url: https://example.com/project\n")
    assert build(small, small / "site").returncode == 0
    assert '<a href="https://example.com/project/blob/main/LICENSE">' in page.read_text("utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("has_mermaid", [True, False])
def test_a_diagram_is_drawn_by_the_bundled_mermaid_or_stays_text(small: Path, has_mermaid: bool) -> None:
    (small / "docs" / "how-to" / "ask.md").write_text("# Ask\n\n```mermaid\nflowchart LR\n  A --> B\n```\n")
    if not has_mermaid:
        (small / "build" / "mermaid" / "mermaid.min.js").unlink()
    assert build(small, small / "site").returncode == 0
    page = (small / "site" / "how-to" / "ask.html").read_text("utf-8")
    drawn = ('<pre class="mermaid">' in page, '<script src="../assets/javascripts/mermaid.min.js">' in page)
    assert drawn == (has_mermaid, has_mermaid)
    assert "mermaid.min.js" not in (small / "site" / "index.html").read_text("utf-8")
