"""Write the reference runs to a journal and die: `writer.py PATH STATE`.

STATE is the place of the data at that moment: all in the log ("log"), in the file and in
a restarted log ("both"), in the file with a log that repeats them ("copied"), or all in
the file ("closed").
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys

from atomic.sessions import SqliteJournal
from tests.sessions.rows import RUN_IDS, SNAPSHOT_AT, reference_rows, snapshot_of


def checkpoint(path: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    connection.close()


def main(path: str, state: str) -> None:
    journal = SqliteJournal(path)
    originals = {name: reference_rows(name) for name in RUN_IDS}
    logs = {name: journal.create(name, rows[0]) for name, rows in originals.items()}
    length = len(originals["first"])
    for index in range(1, length):
        for name, log in logs.items():
            log.append([originals[name][index]])
            if name == "second" and index + 1 == SNAPSHOT_AT:
                log.snapshot(10, snapshot_of(name))
        if state == "both" and index == length // 2:
            checkpoint(path)
    if state == "copied":
        checkpoint(path)
    if state == "closed":
        journal.close()
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
