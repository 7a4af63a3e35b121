"""Make the fixtures of this folder: old runs, old chats and old recordings.

    python tests/old_formats/make.py [NAME…]

Only for new fixtures. One that exists is never made again: see README.md.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import atomic
from tests.old_formats.old_chats import CHATS
from tests.old_formats.old_recordings import RECORDINGS
from tests.old_formats.old_runs import RUNS
from tests.old_formats.place import HERE, MADE_BELOW, Json, Place, pack

KINDS = {"runs": RUNS, "chats": CHATS, "recordings": RECORDINGS}


def main(names: list[str]) -> None:
    source = MADE_BELOW / "src"  # a traceback must not name a folder of this machine
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(Path(atomic.__file__).parent, source / "atomic", ignore=shutil.ignore_patterns("__pycache__"))
    for kind, makers in KINDS.items():
        for maker in makers:
            name = maker.__name__.replace("_", "-")
            archive = HERE / kind / f"{name}.tar.gz"
            if archive.exists() or (names and name not in names):
                continue
            root = MADE_BELOW / name
            shutil.rmtree(root, ignore_errors=True)
            place = Place(root, source=source)
            expected: Json = {"about": (maker.__doc__ or "").strip(), **maker(place)}
            if "id" in expected:
                show(place, expected["id"])
            pack(place, archive)
            archive.with_name(f"{name}.json").write_text(json.dumps(expected, indent=2, ensure_ascii=False) + "\n")
            print(f"{kind}/{name}: {archive.stat().st_size} bytes", flush=True)
    shutil.rmtree(MADE_BELOW)


def show(place: Place, id: str) -> None:
    """Keep what `atomic sessions show` says today. It looks at a copy: a look ends the log that a kill has left."""
    aside = place.root.with_name(f"{place.root.name}.aside")
    shutil.copytree(place.root, aside, symlinks=True)
    shown = place.atomic("sessions", "show", id, "--json")
    assert shown.returncode == 0, shown.stderr
    shutil.rmtree(place.root)
    aside.rename(place.root)
    (place.root / "shown.json").write_text(shown.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
