"""Texts that try to control the terminal that shows them."""

from __future__ import annotations

import itertools

_ESCAPES = ["\x1b", "\x9b", "\x9d", "\x90", "\x9f", "\x98", "\x9e", "\x1b\x1b", "\x18\x1b", "\x1a\x1b"]
_CSI = [
    "2J",
    "H",
    "10;10H",
    "5A",
    "5B",
    "?25l",
    "?1049h",
    "?1049l",
    "?1000h",
    "?2004l",
    "31m",
    "8m",
    "7m",
    "0K",
    "2K",
    "1;5r",
    "3g",
    "4h",
    "20h",
    "?7l",
    "?5h",
    "6n",
    "c",
    "100b",
    "5L",
    "5M",
    "5P",
    "5@",
    "s",
    "u",
    "!p",
    '"q',
    "?6h",
    "18t",
    "22;0t",
    ">1u",
]
_OSC = [
    "0;owned",
    "1;icon",
    "2;title",
    "4;1;rgb:ff/00/00",
    "7;file:///etc",
    "8;;http://evil.example/",
    "8;id=1;http://evil.example/",
    "9;notify",
    "10;#ff0000",
    "11;?",
    "52;c;b3duZWQ=",
    "52;c;?",
    "104",
    "133;A",
    "777;notify;a;b",
    "1337;File=name=eA==:AAAA",
    "1337;SetMark",
]
_ENDS = ["\x07", "\x1b\\", "\x9c", ""]
_STRINGS = ["P1$r0m", "Pq#0;2;0;0;0", "_Gf=100;AAAA", "^pm", "Xsos", "P+q544e", "k title"]
_SINGLE = [
    "c",
    "D",
    "E",
    "M",
    "7",
    "8",
    "=",
    ">",
    "(0",
    "(B",
    ")0",
    "#8",
    "N",
    "O",
    "Z",
    "n",
    "|",
    "%G",
]
_DIRECTION = [chr(code) for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C)]
_NOTHING = [
    chr(code)
    for code in (
        0x00AD,
        0x034F,
        0x115F,
        0x1160,
        0x17B4,
        0x17B5,
        0x180B,
        0x180E,
        *range(0x200B, 0x200E),
        0x2028,
        0x2029,
        *range(0x2060, 0x2066),
        *range(0x206A, 0x2070),
        0x3164,
        0xFE00,
        0xFE0F,
        0xFEFF,
        0xFFA0,
        0xFFF9,
        0xFFFA,
        0xFFFB,
        0x1D173,
        0xE0001,
        0xE0020,
        0xE0041,
        0xE007F,
        0xE0100,
    )
]


def vectors() -> list[str]:
    """Return all hostile texts, without duplicates."""
    made = [chr(code) for code in (*range(0x0A), *range(0x0B, 0x20), 0x7F, *range(0x80, 0xA0))]
    made += [f"a{sign}{rest}b" for sign, rest in itertools.product(["\x1b[", "\x9b"], _CSI)]
    made += [f"a\x1b]{body}{end}b" for body, end in itertools.product(_OSC, _ENDS)]
    made += [f"a\x9d{body}\x9cb" for body in _OSC]
    made += [f"a\x1b{body}\x1b\\b" for body in _STRINGS]
    made += [f"a\x1b{one}b" for one in _SINGLE]
    made += [f"a{sign}[31mb" for sign in _ESCAPES]
    made += [f"user{sign}nimda" for sign in _DIRECTION]
    made += [f"pass{sign}word" for sign in _NOTHING]
    made += [
        "safe\rrm -rf /",
        "safe\b\b\b\bevil",
        "a\x0bb\x0cc",
        "tab\there",
        "e" + "\u0301" * 60,
        "\u0301" * 40,
        "a\u20dd\u20dd\u20dd\u20dd\u20dd",
        "שלום עולם",
        "مرحبا بالعالم",
        "\u202eשלום\u202c x",
        "&#27;[31mred",
        "&#x1b;]0;title&#7;",
        "&#x9b;2J",
        "&#8238;gnp.exe",
        "&#x200b;x",
        "[click](http://x.example/\x1b]0;t\x07)",
        "[a](javascript:alert(1))",
        "![i](http://x.example/\x1b[2J)",
        "<b>\x1b[2J</b>",
        "```\n\x1b[2J\n```",
        "```sh\n\x1b]52;c;eA==\x07\n```",
        "| a | \x1b[5A |\n|---|---|\n| \x9b2J | \u202ex |",
        "`\x1b[2J`",
        "# \x1b[2J",
        "- \x1b[2J\n- \x07",
        "> \x1bc",
        "\ud800\udc00",
        "x\ud83d",
        "[bold]x[/bold] [@click=app.quit]y[/]",
        "\x1b[" + "9" * 40 + "A",
        "\U000e0041\U000e0042" * 50,
        "👨\u200d👩\u200d👧",
        "☑\ufe0f 1\ufe0f\u20e3",
        "\ufffe\uffff",
    ]
    return list(dict.fromkeys(made))
