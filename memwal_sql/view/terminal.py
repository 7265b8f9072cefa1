"""Trees as text and as HTML."""

from __future__ import annotations

import io

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from memwal_sql.view.texts import visible, visible_lines

# A notebook takes the font of text for <pre> unless it is told.
_LINES = '<pre style="font-family:monospace;line-height:1.3">{code}</pre>'
_ENDLESS = 10_000


def line(*parts: str | tuple[str, str]) -> Text:
    """A node of a tree: texts, or pairs of a text and its style. A text is shown as it is: none of
    it is markup, and characters that a terminal would obey are shown as escapes."""
    texts = [visible(p) if isinstance(p, str) else (visible(p[0]), p[1]) for p in parts]
    return Text.assemble(*texts)


def render_html(tree: Tree) -> str:
    """A tree for a notebook, one line a node."""
    return _recorded(tree).export_html(inline_styles=True, code_format=_LINES)


def render_text(tree: Tree) -> str:
    """A tree as plain text, one line a node."""
    text = _recorded(tree).export_text()
    return visible_lines("\n".join(line.rstrip() for line in text.splitlines()))


def _recorded(tree: Tree) -> Console:
    """A console without output: in a notebook an ordinary one would draw there, too."""
    console = Console(
        record=True, file=io.StringIO(), width=_ENDLESS, highlight=False, force_jupyter=False
    )
    console.print(tree)
    return console
