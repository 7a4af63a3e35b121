"""The effects of a text on a terminal, besides being shown."""

from __future__ import annotations

import pyte


class RecordingTerminal(pyte.Screen):
    """A terminal that records its operations, except drawing and new lines."""

    def __init__(self) -> None:
        self.done: list[str] = []
        super().__init__(200, 3)


_OPERATIONS = (
    "bell backspace tab linefeed index reverse_index set_tab_stop save_cursor restore_cursor shift_in "
    "shift_out reset insert_characters cursor_up cursor_down cursor_forward cursor_back cursor_down1 "
    "cursor_up1 cursor_position cursor_to_column cursor_to_line erase_in_display erase_in_line insert_lines "
    "delete_lines delete_characters erase_characters set_mode reset_mode report_device_attributes "
    "report_device_status set_margins select_graphic_rendition alignment_display define_charset clear_tab_stop "
    "set_title set_icon_name "
)


def _record(name: str) -> None:
    original = getattr(pyte.Screen, name)

    def recorded(self: RecordingTerminal, *arguments: object, **named: object) -> object:
        self.done.append(name)
        return original(self, *arguments, **named)

    setattr(RecordingTerminal, name, recorded)


for _name in _OPERATIONS.split():
    _record(_name)


def effects(text: str) -> list[str]:
    """Return the operations that the lines of a text cause in a terminal."""
    screen = RecordingTerminal()
    stream = pyte.Stream(screen)
    screen.done.clear()
    for line in text.split("\n"):
        stream.feed(line)
        screen.cursor.x = 0
    return screen.done
