"""The site of the documentation builds without a warning, and a browser finds nothing broken in it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urldefrag, urljoin

import pytest

from tests.docs.test_paths import DOCUMENTS, ROOT

pytestmark = pytest.mark.ci

if TYPE_CHECKING:
    from playwright.sync_api import Page

# What a page has: the links with their targets, the anchors, the pictures that are not shown, and its text.
LOOK = """() => ({
    links: [...document.querySelectorAll('a[href]')].map(link => link.href),
    anchors: [...document.querySelectorAll('[id]')].map(one => one.id),
    broken: [...document.images].filter(one => !one.complete || one.naturalWidth === 0).map(one => one.src),
    text: document.body.innerText.length,
})"""


class Quiet(SimpleHTTPRequestHandler):
    """A file server that prints nothing."""

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site as `make docs` does."""
    folder = tmp_path_factory.mktemp("site")
    command = (sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "-b", "html")
    places = ("-c", "scripts/site", "-d", str(folder / "doctrees"), "docs", str(folder / "html"))
    done = subprocess.run([*command, *places], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    return folder / "html"


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture
def page() -> Iterator[Page]:
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium")
    assert program, "the test needs chromium, which `make setup` installs"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser.new_page()
        browser.close()


def test_every_document_is_a_page(site: Path) -> None:
    pages = {path.relative_to(site).with_suffix(".md") for path in site.rglob("*.html")}
    documents = {path.relative_to(ROOT / "docs") for path in DOCUMENTS if path.is_relative_to(ROOT / "docs")}
    assert not documents - pages


def test_a_browser_finds_no_broken_link_picture_or_anchor(site: Path, address: str, page: Page) -> None:
    asked: list[str] = []
    failed: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("requestfailed", lambda request: failed.append(request.url))
    page.on("response", lambda response: failed.append(response.url) if response.status >= 400 else None)
    page.on("pageerror", lambda error: failed.append(str(error)))
    seen: dict[str, dict[str, Any]] = {}
    for path in sorted(site.rglob("*.html")):
        url = urljoin(address, str(path.relative_to(site)))
        page.goto(url, wait_until="load")
        seen[url] = page.evaluate(LOOK)
    assert failed == []
    assert [url for url in asked if not url.startswith((address, "data:"))] == [], "a request leaves the machine"
    assert {url: one["broken"] for url, one in seen.items() if one["broken"]} == {}
    assert [url for url, one in seen.items() if one["text"] < 100 and "genindex" not in url] == []
    assert [
        f"{url} -> {link}" for url, one in seen.items() for link in one["links"] if not leads(link, seen, site, address)
    ] == []


def leads(link: str, seen: dict[str, dict[str, Any]], site: Path, address: str) -> bool:
    """Return whether a link leads to a page with that anchor, to a file, or to another site."""
    if not link.startswith(address):
        return True
    url, anchor = urldefrag(link)
    if url == address:
        url = urljoin(address, "index.html")
    if url in seen:
        return not anchor or unquote(anchor) in seen[url]["anchors"]
    return (site / unquote(url.removeprefix(address))).is_file()


def test_the_search_finds_a_page_without_the_network(address: str, page: Page) -> None:
    page.goto(urljoin(address, "search.html?q=salvage"))
    page.wait_for_selector("ul.search li a")
    assert page.locator("ul.search li a").count() > 0
