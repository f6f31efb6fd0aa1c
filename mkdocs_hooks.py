"""What the documentation site needs beyond mkdocs: the order of its parts, links into the repository, and Mermaid.

Pages load nothing from other hosts. Material would have the reader's browser fetch Mermaid: here it is a file of the
site, which `make docs` puts into `build/mermaid`. Where that file is missing, diagrams stay as text.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure import StructureItem
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation, Section
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

ROOT = Path(__file__).parent
MERMAID = ROOT / "build" / "mermaid" / "mermaid.min.js"
SCRIPT = "assets/javascripts/mermaid.min.js"
LINK = re.compile(r"\[(?P<text>[^\]\[]+)\]\((?P<path>(?:\.\./)+[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")
ORDER = ("index.md", "tutorial", "how-to", "reference", "explanation", "glossary.md", "contributing")
"""The parts of docs/ from a newcomer's to a maintainer's; what is not named comes last."""
log = logging.getLogger("mkdocs.hooks")


def on_config(config: MkDocsConfig) -> None:
    """Leave diagrams as text where there is no Mermaid to draw them."""
    if not MERMAID.is_file():
        log.info("diagrams stay as text: there is no %s", MERMAID.relative_to(ROOT))
        config.mdx_configs["pymdownx.superfences"]["custom_fences"] = []


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Put Mermaid into the site."""
    if MERMAID.is_file():
        files.append(File.generated(config, SCRIPT, abs_src_path=str(MERMAID)))


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> None:
    """Order the parts; within a part pages are in the order of their names."""
    nav.items.sort(key=_rank)


def _rank(item: StructureItem) -> int:
    while isinstance(item, Section):
        item = item.children[0]
    part = item.file.src_uri.split("/")[0] if isinstance(item, Page) else ""
    return ORDER.index(part) if part in ORDER else len(ORDER)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links to files outside of docs/ into links to the repository, or into text while that has no address."""
    docs = Path(config.docs_dir)
    folder = (docs / page.file.src_uri).parent

    def replaced(link: re.Match[str]) -> str:
        path = (folder / link["path"]).resolve()
        if path.is_relative_to(docs) or not path.is_relative_to(ROOT):
            return link[0]
        if not path.exists():
            log.warning("Doc file '%s' links to '%s', which is not there", page.file.src_uri, link["path"])
        address = f"blob/main/{path.relative_to(ROOT).as_posix()}{link['anchor'] or ''}"
        return f"[{link['text']}]({config.repo_url.rstrip('/')}/{address})" if config.repo_url else link["text"]

    return LINK.sub(replaced, markdown)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Have a page with diagrams load the site's Mermaid, before Material looks for one."""
    if 'class="mermaid"' not in output:
        return output
    script = f'<script src="{get_relative_url(SCRIPT, page.url)}"></script>'
    return output.replace("</head>", f"{script}</head>", 1)
