"""Secrets never reach a file or another program: known ones, and what looks like one.

`Redactor` cleans text and data. `is_secret_variable` decides which variables of the environment the
programs that Atomic starts may see. This package knows no file, no agent and no workflow.
"""

from atomic.redact.redactor import Redactor, redact
from atomic.redact.spellings import MARK, SHORTEST
from atomic.redact.variables import SECRET_WORDS, is_secret, is_secret_variable

__all__ = ["MARK", "SECRET_WORDS", "SHORTEST", "Redactor", "is_secret", "is_secret_variable", "redact"]
