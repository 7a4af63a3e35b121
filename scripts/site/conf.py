"""Settings of the documentation's site; `make docs` builds it into `build/site`.

The pages are the Markdown files of `docs/`, which are also read as they are. So the order of the
pages is here and not in them: NAVIGATION becomes the table of contents of `docs/index.md`.
The site asks for nothing from another machine: system fonts, no counter, a local search.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

HERE = Path(__file__).resolve().parent
NAVIGATION: dict[str, list[str]] = tomllib.loads((HERE / "navigation.toml").read_text(encoding="utf-8"))

project = "Atomic"
copyright = "Atomic contributors"
html_title = "Atomic"
html_theme = "furo"
html_show_sphinx = False
html_show_sourcelink = False
html_copy_source = False
html_static_path = ["static"]
html_css_files = ["atomic.css"]
html_theme_options = {"navigation_with_keys": True}

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["**/__pycache__"]
myst_heading_anchors = 4  # anchors as GitHub makes them
myst_enable_extensions = ["colon_fence"]
suppress_warnings = ["misc.highlighting_failure"]  # an ellipsis in an example is not Python


def add_contents(app: Sphinx, name: str, source: list[str]) -> None:
    """Append the table of contents to the first page."""
    if name == "index":
        source[0] += "".join(contents(caption, pages) for caption, pages in NAVIGATION.items())


def contents(caption: str, pages: list[str]) -> str:
    """Return a hidden table of contents: it is shown at the side of each page."""
    return f"\n\n```{{toctree}}\n:hidden:\n:glob:\n:caption: {caption}\n\n" + "\n".join(pages) + "\n```\n"


def setup(app: Sphinx) -> None:
    app.connect("source-read", add_contents)
