"""The transcript as lines: a block and a width become strips."""
