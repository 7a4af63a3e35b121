"""Make the parts of the package's metadata that depend on where the repository is.

An index page shows the README without its repository, so links and images need whole
addresses. The address is the one of the checkout's `origin`, or ATOMIC_REPOSITORY if a
release is built without git. No file names it: a fork gets its own. Without an address
there are no URLs, and the README keeps only the text of its links.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^)\s]+)\)")
_ATTRIBUTE = re.compile(r'(?P<name>src|href)="(?P<target>[^"]+)"')
_IMAGE_TAG = re.compile(r'<img\b[^>]*\bsrc="(?!https?:)[^>]*>')
_WHOLE = re.compile(r"[a-z]+:|//")
_SSH = re.compile(r"(?:ssh://)?git@(?P<host>[\w.-]+)[:/](?P<path>.+)")


class RepositoryMetadata(MetadataHookInterface):
    """The readme and the URLs of the package."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add them."""
        root = Path(self.root)
        address = repository_address(root)
        readme = (root / "README.md").read_text(encoding="utf-8")
        if "readme" not in metadata:  # an sdist has them already
            text = readme_for_index(readme, address, commit_of(root))
            metadata["readme"] = {"content-type": "text/markdown", "text": text}
        if "urls" not in metadata:
            metadata["urls"] = urls_at(address)


def repository_address(root: Path) -> str:
    """Return the https address of the repository, or an empty text without one."""
    given = os.environ.get("ATOMIC_REPOSITORY") or _git(root, "config", "--get", "remote.origin.url")
    ssh = _SSH.fullmatch(given)
    if ssh is not None:
        given = f"https://{ssh['host']}/{ssh['path']}"
    # A token before the host must not be published.
    address = re.sub(r"^https://[^@/]+@", "https://", given.strip()).rstrip("/").removesuffix(".git")
    return address if address.startswith("https://") else ""


def commit_of(root: Path) -> str:
    """Return the commit that is built, or HEAD without git."""
    return _git(root, "rev-parse", "HEAD") or "HEAD"


def _git(root: Path, *words: str) -> str:
    if not (root / ".git").exists():  # an unpacked sdist inside of another repository
        return ""
    try:
        done = subprocess.run(("git", *words), cwd=root, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def urls_at(address: str) -> dict[str, str]:
    """Return the URLs that an index page lists."""
    if not address:
        return {}
    return {
        "Source": address,
        "Documentation": f"{address}/tree/HEAD/docs",
        "Changelog": f"{address}/blob/HEAD/CHANGELOG.md",
        "Issues": f"{address}/issues",
    }


def readme_for_index(text: str, address: str, commit: str) -> str:
    """Return a README whose links and images work without its repository."""

    def whole(target: str, *, is_image: bool) -> str:
        if target.startswith("#"):
            target = f"README.md{target}"
        return f"{address}/{'raw' if is_image else 'blob'}/{commit}/{target.removeprefix('./')}"

    def link(found: re.Match[str]) -> str:
        image, inner, target = found["image"], found["text"], found["target"]
        if not image:
            inner = _LINK.sub(link, inner)  # an image that is a link
        if _WHOLE.match(target):
            return f"{image}[{inner}]({target})"
        if not address:
            return "" if image else inner
        return f"{image}[{inner}]({whole(target, is_image=bool(image))})"

    def attribute(found: re.Match[str]) -> str:
        if _WHOLE.match(found["target"]) or not address:
            return found[0]
        return f'{found["name"]}="{whole(found["target"], is_image=found["name"] == "src")}"'

    code: list[str] = []

    def hide(found: re.Match[str]) -> str:
        code.append(found[0])
        return f"\0{len(code) - 1}\0"

    # Code stays as it is, but a link may have some in its text.
    text = _CODE.sub(hide, text)
    text = _LINK.sub(link, text)
    if not address:
        text = _IMAGE_TAG.sub("", text)
    text = _ATTRIBUTE.sub(attribute, text)
    return re.sub(r"\0(\d+)\0", lambda found: code[int(found[1])], text)
