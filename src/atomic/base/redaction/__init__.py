"""Secrets never reach a file or another program: known ones, and what looks like one.

`Redactor` cleans text and data. `is_secret_variable` decides which variables of the environment the
programs that Atomic starts may see. This package knows no file, no agent and no workflow.
"""

from atomic.base.redaction.redactor import Redactor, redact
from atomic.base.redaction.spellings import MARK, SHORTEST
from atomic.base.redaction.variables import SECRET_WORDS, is_secret, is_secret_variable

__all__ = ["MARK", "SECRET_WORDS", "SHORTEST", "Redactor", "is_secret", "is_secret_variable", "redact"]
