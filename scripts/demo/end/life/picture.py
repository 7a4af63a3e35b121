"""Cells as text: half blocks put two rows of cells into each line, so that they are square."""

BLOCKS = {(False, False): " ", (True, False): "▀", (False, True): "▄", (True, True): "█"}


def draw(alive, width, height):
    """Draw a board, without a frame."""
    return [
        "".join(BLOCKS[(x, y) in alive, (x, y + 1) in alive] for x in range(width)).rstrip()
        for y in range(0, height, 2)
    ]


def framed(lines, width, title):
    """Put a frame around lines, with a title in it."""
    top = f"─ {title} ".ljust(width, "─")[:width]
    return "\n".join([f"╭{top}╮", *(f"│{line.ljust(width)}│" for line in lines), f"╰{'─' * width}╯"])
