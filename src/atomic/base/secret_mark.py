"""The text that stands for a secret where files are written."""

MARK = "[redacted]"
