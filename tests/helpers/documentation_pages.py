"""What a page of the documentation contains: blocks of Python, commands, links.

The Python blocks of a page run one after another in one namespace and an empty folder. Comments on the lines before a
block, which readers do not see, say more about it:

    <!-- alone -->              it runs in an interpreter of its own and shares no names with the others
    <!-- check: expression -->  what must be true after it has run
"""

from __future__ import annotations

import ast
import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
GENERATED = {"examples", "generated"}
PAGES = [ROOT / "README.md", *sorted(p for p in DOCS.rglob("*.md") if not GENERATED & set(p.relative_to(DOCS).parts))]
_BLOCK = re.compile(r"(?P<marks>(?:^<!-- [^\n]* -->\n)*)^```python\n(?P<source>.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"<!-- (alone|check)(?:: (.*))? -->")
_FENCED = re.compile(r"^(`{3,}|:{3,}).*?^\1$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One block of Python."""

    page: Path
    line: int
    source: str
    alone: bool
    checks: tuple[str, ...]

    @property
    def script(self) -> str:
        """The source with its checks, at its place in the page, so that tracebacks name the page's lines."""
        checks = "".join(f"assert ({check}), {check!r}\n" for check in self.checks)
        return "\n" * self.line + self.source + checks

    @property
    def missing(self) -> list[str]:
        """Modules that it imports and that are not installed."""
        names = set()
        for node in ast.walk(ast.parse(self.source)):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module.split(".")[0])
        return sorted(name for name in names if importlib.util.find_spec(name) is None)


def name_of(page: Path) -> str:
    """Return the page's path inside the project."""
    return page.relative_to(ROOT).as_posix()


def blocks_of(page: Path) -> list[Block]:
    """Return the page's blocks of Python, in their order."""
    text, blocks = page.read_text(encoding="utf-8"), []
    for match in _BLOCK.finditer(text):
        marks = [_MARK.fullmatch(line) for line in match["marks"].splitlines()]
        assert all(marks), f"{name_of(page)}: unknown mark in {match['marks']!r}"
        checks = tuple(mark[2] for mark in marks if mark[1] == "check")
        alone = any(mark[1] == "alone" for mark in marks)
        blocks.append(Block(page, text.count("\n", 0, match.start("source")), match["source"], alone, checks))
    return blocks


def prose_of(page: Path) -> str:
    """Return the page without its fenced blocks."""
    return _FENCED.sub("", page.read_text(encoding="utf-8"))


def commands_of(page: Path) -> list[str]:
    """Return the indented lines of the page that begin with a command."""
    return re.findall(r"^    (\S.*)$", prose_of(page), re.MULTILINE)


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of the page's headings, as repository hosts and MyST make them."""
    headings = re.findall(r"^#+ (.+)$", prose_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
