"""Keep secrets out of files and other programs.

`Redactor` cleans text and data, `EventRedactor` events whose text arrives in pieces.
`is_secret_variable` decides which environment variables reach the programs that Atomic
starts. This package knows no file, no agent and no workflow.
"""

from atomic.base.redaction.known_secrets import ASSIGNED_WORDS, SHORTEST, is_secret, is_secret_variable
from atomic.base.redaction.redactor import Redactor, redact
from atomic.base.redaction.streams import EventRedactor, HeldText, Line
from atomic.base.secret_mark import MARK

__all__ = [
    "ASSIGNED_WORDS",
    "MARK",
    "SHORTEST",
    "EventRedactor",
    "HeldText",
    "Line",
    "Redactor",
    "is_secret",
    "is_secret_variable",
    "redact",
]
