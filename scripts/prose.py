"""Report how plain the prose of the repository is, room by room.

Prose is docstrings, comments, messages (string literals that read like a sentence), names of
tests and Markdown. The report has two measures:

* marker phrases per 1,000 words. A marker is a phrase that is frequent in hard prose and rare
  in the code of other projects; MARKERS lists them. One marker proves nothing, a high rate
  does. httpx, trio, Textual, pytest and others are at 0.2 to 1.9, the target is below 6.
* docstrings of functions whose first word is not a verb. See `begins_with_verb` for the rule.

    scripts/prose.py                        the table
    scripts/prose.py --room cli --show 20   and the 20 worst places of one room
    scripts/prose.py --room cli --nouns 20  and 20 docstrings that do not begin with a verb
    scripts/prose.py --max 6                exit 1 if a room has more markers per 1,000 words
    scripts/prose.py FOLDER ...             measure other code, each folder as a room
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import textwrap
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

_BE = "(?:is|are|was|were|be|been|being)"

# Each group has a reason and its phrases: regular expressions that match whole words in any
# case. A space matches every white space, so a phrase may be wrapped.
MARKERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "Indefinite people: name the role (user, caller, agent) or use the passive voice.",
        (
            "nobody",
            "somebody",
            "anybody",
            "whom?ever",
            "persons?",
            "for people",
            "a stranger",
        ),
    ),
    (
        "Speech for input and output: use report, print, send, receive, return, raise.",
        (
            f"{_BE} asked",
            "tells?|told",
            "says?|said",
            "hears?|heard",
            "speaks?",
            "news",
            "(?:the|its|their|own|same|in|with|no|other) words",
            "words of",
            "without a word",
        ),
    ),
    (
        "Movement and place for state: use continue, after, next to, until it ends, running.",
        (
            "(?:go|goes|going|went|gone) on(?! the| a| to)",
            "what stands",
            "stands",
            "behind",
            "beside",
            "to (?:its|their) end",
            "at work",
            "lets? go",
        ),
    ),
    (
        "Negation by a noun: negate the verb (is not a, does not exist, no longer).",
        (
            "any more",
            "for ever",
            "there (?:is|are) (?-i:none)",
            "(?:is|are|was|were) (?-i:none)(?! of)",
            r"(?<!there\s)(?:is|are|was|were) no(?! longer| more)",
            "is nothing",
        ),
    ),
    (
        "A relative clause for a noun: name the thing (the answer, not that which was answered).",
        (
            "what (?:is|are|was|were|has|had|a|an|the|it|they|all)",
            "all that",
            "those (?:that|of)",
            "that of",
        ),
    ),
    (
        "Quantity and time: use only, again, a number, at the same time, still.",
        ("so many", "how-manieth", "alone", "anew", "again and again", "all the same", "meanwhile"),
    ),
    (
        "Metaphors: use snapshot or drawing, report, fix, writer, folder, task group.",
        (
            "pictures?",
            "story",
            "mend(?:s|ed|ing)?",
            "pen",
            "desk",
            "crew",
            "shelf|shelves",
            "of ours",
        ),
    ),
)

_PHRASES = "|".join(phrase for _, phrases in MARKERS for phrase in phrases)
MARKER = re.compile(rf"\b(?:{_PHRASES})\b".replace(" ", r"\s+"), re.IGNORECASE)
WORD = re.compile(r"[A-Za-z][A-Za-z'’-]*")

# A string literal is a message if it has at least four words and one of these.
FUNCTION_WORDS = frozenset(
    """
    a an and are as at but by can cannot could does for from has if in is it its may must no not of
    on or should that the this to was were when which will with you your
    """.split()  # noqa: SIM905  # easier to read without quotes
)

# Verbs that begin a docstring in Atomic or in one of the projects it was compared with.
VERBS = frozenset(
    """
    abandon abort absorb accept access accumulate acknowledge acquire activate adapt add adjust
    admit advance align allocate allow analyse analyze anchor animate answer append apply
    approve approximate archive arrange ask assemble assert assign associate attach attempt
    attribute authenticate avoid await backfill bail balance batch be become begin behave bind
    blend block blur borrow bound break bring bubble budget buffer build bundle cache calculate
    call cancel cap capitalize capture carry cast catch cause centre chain change charge check
    choose clamp classify clean clear click clip clone close coerce collapse collect combine
    commit compare compile complete compose compress compute configure confirm connect constrain
    construct consume contain continue convert copy correct count create crop cut damage darken
    deactivate decide declare decode decompress decorate decrease decrement deduplicate define
    delay delegate delete deliver demand deny deregister derive describe deselect deserialize
    detach detect determine die diff dim disable discard disconnect dismiss dispatch display
    distribute divide do downgrade download draw drop dump edit embed emit empty emulate enable
    encode encrypt end enforce enqueue ensure enter enumerate erase escape estimate evaluate
    evict exchange exclude execute exempt exit expand expect explain export extend extract fade
    fail fall feed fetch fill filter finalize find finish fit fix flatten flush focus fold
    follow force forget fork format forward free freeze gather generate get give glob go grab
    grade grant greet group grow guess hand handle hang hash have hear hide highlight hold hook
    identify ignore implement import increase increment indent index indicate infer inform
    inherit initialise initialize initiate inject insert inspect install intercept interpret
    interrupt introduce invalidate invoke isolate issue iterate join judge justify keep kill
    know launch lay lead leak learn leave let lighten limit link list listen load locate lock
    log look lower make manage map mark mask match materialise materialize maximize measure
    memoize merge migrate minimize mirror mock modify monitor mount move multiply name navigate
    negate nest normalise normalize note notice notify number obey observe obtain offer omit
    open order organize outline output overwrite own pack pad paginate paint parametrize park
    parse partition pass paste patch pause pay peek peel perform persist pick pickle pin ping
    place plan play point poll pop populate post predict prefer prefix prepare prepend present
    preserve press pretend prevent prime print probe process produce promote prompt propagate
    protect prove provide prune publish pull punctuate purge push put query queue quit quote
    raise rank reach react read reap rearrange reattach rebase rebind rebuild receive reclaim
    recompose recompute reconcile reconfigure reconnect record recover recreate redact redirect
    redo redraw reduce reflect reflow refresh refund refuse register reject relay release reload
    rely remember remove rename render reopen repaint repair repeat replace replay replicate
    reply report represent request require rerun reschedule reserve reset resize resolve respond
    restart restore restrict resume retain retire retrieve retry return reuse revalidate reveal
    reverse revert review revoke rewind rewrite ring roll rotate round route run sample sanitize
    save say scale scan schedule score scroll seal search see seed seek select send separate
    serialize serve set settle shake share shield shift shorten show shrink shuffle shut sign
    signal simplify simulate skip sleep slice slugify snapshot sort spawn specify spend split
    squash stage stamp start stash steer stop store stream stretch strip stub submit subscribe
    substitute suggest summarise summarize summon suppress surface suspend swap switch sync
    synchronize tag tail take talk teach tear teardown tell terminate test throttle toggle
    tokenize touch trace track train transform translate trap traverse treat trigger trim
    truncate trust try turn underline undo unescape uninstall unlock unmount unpack unpark
    unquote unregister unset unsubscribe unwind unwrap update upgrade upload use validate verify
    visit vote wait wake walk warn watch weigh wire work wrap write yield zip
    """.split()  # noqa: SIM905  # easier to read without quotes
)
# Words that make a noun of the verb in front: "name of the file", "runs that have ended".
AFTER_NOUN = frozenset({"of", "is", "are", "was", "were"})
AFTER_PLURAL = AFTER_NOUN | {"that", "which", "whose", "in"}


@dataclass(frozen=True)
class Passage:
    """A piece of prose and where it begins."""

    path: Path
    line: int
    text: str
    source: tuple[str, ...] = ()  # the lines of source, if the text is joined from several literals

    def line_of(self, match: re.Match[str]) -> int:
        """Return the number of the source line that holds a match."""
        if not self.source:
            return self.line + self.text.count("\n", 0, match.start())
        words = match[0].split()
        for wanted in (" ".join(words), words[-1]):
            for number, written in enumerate(self.source, self.line):
                if wanted in written:
                    return number
        return self.line


Place = tuple[Passage, list[re.Match[str]]]  # a passage and the markers in it


@dataclass
class Room:
    """The counts of one room and the places that were counted."""

    words: int = 0
    markers: int = 0
    docstrings: int = 0
    places: list[Place] = field(default_factory=list[Place])
    nouns: list[Passage] = field(default_factory=list[Passage])

    @property
    def rate(self) -> float:
        """Markers per 1,000 words."""
        return 1000 * self.markers / self.words if self.words else 0.0

    def add(self, passage: Passage) -> None:
        """Count words and markers of a passage."""
        prose = without_code(passage.text)
        found = list(MARKER.finditer(prose))
        self.words += len(WORD.findall(prose))
        self.markers += len(found)
        if found:
            self.places.append((passage, found))

    def add_docstring(self, passage: Passage) -> None:
        """Count a docstring of a function."""
        self.docstrings += 1
        if not begins_with_verb(passage.text):
            self.nouns.append(passage)

    def include(self, other: Room) -> None:
        """Add the counts of another room, without its places."""
        self.words += other.words
        self.markers += other.markers
        self.docstrings += other.docstrings
        self.nouns += other.nouns


# Text


def without_code(text: str) -> str:
    """Replace code, addresses and tags by blanks; keep the line breaks."""
    patterns = (
        r"(?ms)^[ \t]*(```|~~~).*?^[ \t]*\1",  # a fenced block
        r"(?s)<!--.*?-->",
        r"``[^`]+``|`[^`]+`",
        r"(?<=\])\([^)\s]*\)",  # the target of a link
        r"\w+://\S+",
        r"</?[a-zA-Z][^<>]*>",
        r"(?m)^[ \t]*(>>>|\.\.\.) .*$",
    )
    for pattern in patterns:
        text = re.sub(pattern, lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    return text


def begins_with_verb(docstring: str) -> bool:
    """Return whether a docstring begins with a verb, as "Return" or "Returns".

    The first word must be in VERBS, after adverbs in -ly. It is a closed list because ruff's
    D401 accepts every word that it does not know, articles too. A verb that is missing in
    VERBS is reported although it should not be: add it. A noun that is spelled like a verb
    ("Name for the file") is accepted, unless a word of AFTER_NOUN follows.
    """
    words = [word.lower() for word in WORD.findall(docstring)]
    while words and words[0].endswith("ly") and words[0] not in VERBS:
        words.pop(0)
    if words[:1] == ["don't"]:
        return True
    if not words:
        return False
    first = words[0]
    following = words[1] if len(words) > 1 else ""
    for prefix in ("re-", "un-", "de-"):
        first = first.removeprefix(prefix)
    if first in VERBS:
        return following not in AFTER_NOUN
    singulars = {first.removesuffix("s"), first.removesuffix("es"), first.removesuffix("ies") + "y"}
    return bool(singulars & VERBS) and following not in AFTER_PLURAL


def is_message(text: str) -> bool:
    """Return whether a string literal reads like a sentence: four words, one a function word."""
    words = WORD.findall(text)
    if len(words) < 4 or not FUNCTION_WORDS.intersection(words):
        return False
    if "\n" not in text:
        return True
    try:  # a program in a string is not prose
        ast.parse(textwrap.dedent(text))
    except (SyntaxError, ValueError):
        return True
    return False


ITEM = re.compile(r"\s*([-*+|#]|\d+\.)")


def read_paragraphs(path: Path) -> Iterator[Passage]:
    """Yield the paragraphs, list items and rows of tables of a Markdown or text file."""
    lines: list[str] = []
    first = 1
    for number, line in enumerate(without_code(path.read_text("utf-8")).splitlines(), 1):
        if lines and (not line.strip() or ITEM.match(line)):
            yield Passage(path, first, "\n".join(lines))
            lines = []
        if not lines:
            first = number
        lines.append(line)
    if lines:
        yield Passage(path, first, "\n".join(lines))


# Python


def read_python(path: Path) -> tuple[list[Passage], list[Passage], list[Passage]]:
    """Return all passages of a module, its docstrings of functions, and its names of tests."""
    source = path.read_text("utf-8")
    lines = source.splitlines()
    tree = ast.parse(source)
    passages: list[Passage] = []
    docstrings: list[Passage] = []
    names: list[Passage] = []
    not_messages: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            not_messages.add(node.value)  # a docstring, or one of an attribute
            if isinstance(node.value.value, str):
                passages.append(literal_passage(path, node.value, node.value.value, lines))
        if isinstance(node, ast.JoinedStr):
            not_messages.update(node.values)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            is_test = node.name.startswith("test_")
            if is_test:
                names.append(Passage(path, node.lineno, node.name.replace("_", " ")))
            docstring = ast.get_docstring(node)
            if docstring and not is_test and not is_property(node):
                docstrings.append(Passage(path, node.lineno, docstring))
        elif isinstance(node, ast.JoinedStr):
            text = ""
            for part in node.values:
                text += str(part.value) if isinstance(part, ast.Constant) else "…"
            if is_message(text):
                passages.append(literal_passage(path, node, text, lines))
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node not in not_messages
            and is_message(node.value)
        ):
            passages.append(literal_passage(path, node, node.value, lines))
    passages.extend(read_comments(path, source))
    return passages, docstrings, names


def is_property(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a function is read like an attribute: then a noun describes it."""
    return any("property" in ast.unparse(decorator) for decorator in function.decorator_list)


def literal_passage(path: Path, node: ast.Constant | ast.JoinedStr, text: str, lines: list[str]) -> Passage:
    """Return the passage of a literal."""
    last = node.end_lineno or node.lineno
    if text.count("\n") == last - node.lineno:
        return Passage(path, node.lineno, text)
    return Passage(path, node.lineno, text, tuple(lines[node.lineno - 1 : last]))


DIRECTIVE = re.compile(r"#!|#\s*(noqa|type:|fmt:|pyright:|pragma|ruff:|isort:|-\*-)")


def read_comments(path: Path, source: str) -> Iterator[Passage]:
    """Yield the comments of a module; lines of comment that follow each other are one."""
    block: list[str] = []
    block_line = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or DIRECTIVE.match(token.string):
            continue
        line, column = token.start
        is_whole_line = not token.line[:column].strip()
        if block and not (is_whole_line and line == block_line + len(block)):
            yield Passage(path, block_line, "\n".join(block))
            block = []
        if not block:
            block_line = line
        block.append(token.string.lstrip("#: "))
    if block:
        yield Passage(path, block_line, "\n".join(block))


# Rooms


def measure(root: Path, folders: Iterable[Path] = ()) -> dict[str, Room]:
    """Measure the repository at `root`, or each of `folders` as a room."""
    rooms: dict[str, Room] = {}
    for name, path in files_of_folders(folders) if folders else files_of_repository(root):
        room = rooms.setdefault(name, Room())
        if path.suffix != ".py":
            for paragraph in read_paragraphs(path):
                room.add(paragraph)
            continue
        passages, docstrings, names = read_python(path)
        for passage in passages:
            room.add(passage)
        for docstring in docstrings:
            room.add_docstring(docstring)
        for test_name in names:
            rooms.setdefault(f"names of {name}", Room()).add(test_name)
    return rooms


def files_of_repository(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files with prose, each with the name of its room."""
    package = root / "src" / "atomic"
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).parts
        yield (parts[0] if len(parts) > 1 else "top level"), path
    for suffix in (".md", ".txt", ".tmpl"):
        for path in sorted(package.rglob(f"*{suffix}")):
            yield "prompts", path
    for folder in ("tests", "examples", "scripts", "bench"):
        for path in sorted((root / folder).rglob("*.py")):
            yield folder, path
    for path in sorted((root / "docs").rglob("*.md")):
        yield "docs", path
    for path in sorted(root.glob("*.md")):
        yield path.name, path


def files_of_folders(folders: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    """Yield the Python and Markdown files of folders."""
    for folder in folders:
        for path in sorted([*folder.rglob("*.py"), *folder.rglob("*.md")]):
            yield folder.name, path


# Report


def print_table(rooms: dict[str, Room]) -> None:
    """Print the counts of every room and their sum."""
    total = Room()
    for room in rooms.values():
        total.include(room)
    print("room                  words  markers  per 1,000  docstrings  without verb")
    for name, room in [*rooms.items(), ("all", total)]:
        row = f"{name:<18} {room.words:>8,} {room.markers:>8,} {room.rate:>10.1f}"
        if room.docstrings:
            share = 100 * len(room.nouns) / room.docstrings
            row += f" {room.docstrings:>11,} {len(room.nouns):>6,} ({share:.0f} %)"
        print(row)


def print_places(rooms: dict[str, Room], count: int, root: Path) -> None:
    """Print the passages with the most markers, the densest first among equals."""
    places = [place for room in rooms.values() for place in room.places]
    places.sort(key=lambda place: (-len(place[1]), len(place[0].text)))
    print()
    for passage, found in places[:count]:
        phrases = ", ".join(" ".join(match[0].split()) for match in found)
        start = max(0, found[0].start() - 30)
        excerpt = " ".join(passage.text[start : start + 120].split())
        print(f"{relative(passage.path, root)}:{passage.line_of(found[0])}: {phrases} | {excerpt}")


def print_nouns(rooms: dict[str, Room], count: int, root: Path) -> None:
    """Print docstrings that do not begin with a verb."""
    print()
    nouns = [passage for room in rooms.values() for passage in room.nouns]
    for passage in nouns[:count]:
        print(f"{relative(passage.path, root)}:{passage.line}: {passage.text.splitlines()[0]}")


def relative(path: Path, root: Path) -> Path:
    """Return the path below `root`, or as it is if it is elsewhere."""
    return path.relative_to(root) if path.is_relative_to(root) else path


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Print the report and return the exit code."""
    parser = argparse.ArgumentParser(description="Report how plain the prose is, room by room.")
    add = parser.add_argument
    add("folders", nargs="*", type=Path, help="measure these instead of the repository")
    add("--room", help="only this room")
    add("--show", type=int, default=0, metavar="N", help="print the N worst places")
    add("--nouns", type=int, default=0, metavar="N", help="print N docstrings without a verb")
    add("--max", type=float, default=float("inf"), metavar="RATE", help="exit 1 if a room is above")
    options = parser.parse_args(arguments)
    rooms = measure(root, options.folders)
    if options.room is not None:
        if options.room not in rooms:
            parser.error(f'no room "{options.room}"; choose one of: {", ".join(rooms)}')
        rooms = {options.room: rooms[options.room]}
    print_table(rooms)
    if options.show:
        print_places(rooms, options.show, root)
    if options.nouns:
        print_nouns(rooms, options.nouns, root)
    above = ", ".join(name for name, room in rooms.items() if room.rate > options.max)
    if above:
        print(f"\nMore than {options.max:g} markers per 1,000 words: {above}", file=sys.stderr)
    return 1 if above else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
