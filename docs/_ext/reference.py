"""Writes the pages of the API reference from public names, and turns names in backticks into links to them.

Every room has a page with its names, and every name a page of its own, at its place nearest to the top: what is in
`pydirect` and in a room is documented as of `pydirect`. Pages stand in reference/generated, and are only rewritten when
they change.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
from functools import cached_property
from pathlib import Path
from typing import Any

from docutils import nodes
from public_names import inherited, members, names_of, places, rooms
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.nodes import make_refnode

from pydirect.cli.main import build_parser

# -------------------------------------------------------------------------------------------------------------- pages


def title(text: str) -> list[str]:
    """Lines of a title."""
    return [text, "=" * len(text), ""]


def table(names: list[str], indent: str = "") -> list[str]:
    """A table of names and their first lines."""
    return [f"{indent}.. autosummary::", "", *(f"{indent}   ~{name}" for name in names), ""]


def page_of_name(place: str) -> str:
    """The page of one name."""
    module, _, name = place.rpartition(".")
    value = getattr(importlib.import_module(module), name)
    lines = title(name)
    if not inspect.isclass(value):
        kind = "autofunction" if callable(value) else "autodata"
        return "\n".join([*lines, f".. {kind}:: {place}", ""])
    found = members(value)
    kind = "autoexception" if issubclass(value, BaseException) else "autoclass"
    lines += [f".. {kind}:: {place}"]
    if found:
        lines += [f"   :members: {', '.join(found)}"]
        special = [member for member in found if member.startswith("_")]
        lines += [f"   :special-members: {', '.join(special)}"] if special else []
    lines += [""]
    values = {key: isinstance(member, property | cached_property) for key, member in found.items()}
    for heading, wanted in (("Methods", False), ("Properties", True)):
        if chosen := [f"{name}.{member}" for member, is_value in values.items() if is_value == wanted]:
            lines += [f"   .. rubric:: {heading}", "", *table(chosen, "   ")]
    if others := inherited(value):
        lines += [f"   From scikit-learn: {', '.join(f'``{other}``' for other in others)}.", ""]
    return "\n".join(lines)


def page_of_room(room: str, module: Any) -> str:
    """The page of one room: its docstring and its names."""
    names = [places()[f"{room}.{name}"] for name in names_of(module)]
    groups: dict[str, list[str]] = {"Classes": [], "Functions": [], "Warnings and errors": [], "Constants": []}
    for place in names:
        value = getattr(importlib.import_module(place.rpartition(".")[0]), place.rpartition(".")[2])
        if inspect.isclass(value):
            groups["Warnings and errors" if issubclass(value, BaseException) else "Classes"].append(place)
        else:
            groups["Functions" if callable(value) else "Constants"].append(place)
    lines = [*title(room), f".. py:module:: {room}", "", inspect.getdoc(module) or "", ""]
    for heading, chosen in groups.items():
        if chosen:
            # Autosummary wants names of the current module without it.
            short = [name if own == room else f"{own}.{name}" for own, _, name in (p.rpartition(".") for p in chosen)]
            lines += [f".. rubric:: {heading}", "", *table(sorted(short, key=lambda name: name.rpartition(".")[2]))]
    own = sorted(place for place in names if place.rpartition(".")[0] == room)
    return "\n".join([*lines, ".. toctree::", "   :hidden:", "", *(f"   {place}" for place in own), ""])


def page_of_commands() -> str:
    """The page of the command line: what `--help` prints, of each command."""
    parser = build_parser()
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    lines = [*title("Command line"), inspect.getdoc(importlib.import_module("pydirect.cli.main")) or "", ""]
    for name, command in {"pydirect": parser, **commands.choices}.items():
        heading = name if name == "pydirect" else f"pydirect {name}"
        command.formatter_class = lambda prog, kind=command.formatter_class: kind(prog, width=100)
        if hasattr(command, "color"):
            command.color = False  # which argparse has from Python 3.14 on
        text = [f"   {line}".rstrip() for line in command.format_help().splitlines()]
        lines += [heading, "-" * len(heading), "", ".. code-block:: text", "", *text, ""]
    return "\n".join(lines)


def rooms_table() -> str:
    """The table of the rooms and the hidden list of their pages, for the index."""
    lines = [".. list-table::", "   :widths: auto", ""]
    for room, module in rooms().items():
        lines += [f"   * - :doc:`{room} <generated/{room}>`", f"     - {(module.__doc__ or '').splitlines()[0]}"]
    lines += ["   * - :doc:`Command line <generated/commands>`", "     - What ``pydirect --help`` prints.", ""]
    pages = [f"   generated/{room}" for room in (*rooms(), "commands")]
    return "\n".join([*lines, ".. toctree::", "   :hidden:", "", *pages, ""])


def write_pages(folder: Path) -> None:
    """Write the pages that have changed, and remove those that are no more."""
    pages = {f"{room}.rst": page_of_room(room, module) for room, module in rooms().items()}
    pages |= {f"{place}.rst": page_of_name(place) for place in set(places().values())}
    pages |= {"commands.rst": page_of_commands(), "rooms.inc": rooms_table()}
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        if path.name not in pages:
            path.unlink()
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


# -------------------------------------------------------------------------------------------------------------- links


class NamesToLinks(SphinxPostTransform):
    """Makes a link of every literal that is a public name.

    A bare word is a member of the class around it, or the public name of one thing. A bare word without a capital or an
    underscore may mean anything else, and needs ``()`` or its room: ``pydirect.load``.
    """

    default_priority = 20
    pattern = re.compile(r"(?P<name>[A-Za-z]\w*(\.\w+)*)(\(\))?")

    def run(self, **kwargs: Any) -> None:
        """Look at every literal outside of titles, signatures and other links."""
        domain = self.env.domains.python_domain
        aliases = self.app.reference_aliases  # type: ignore[attr-defined]
        for literal in list(self.document.findall(nodes.literal)):
            match = self.pattern.fullmatch(literal.astext())
            if match is None or self.is_inside(literal, nodes.reference, nodes.title, addnodes.desc_signature):
                continue
            target = self.target(literal, match["name"], literal.astext().endswith("()"), domain.objects, aliases)
            if target is None:
                continue
            found = domain.objects[target]
            here = self.env.docname
            reference = make_refnode(self.app.builder, here, found.docname, found.node_id, literal.deepcopy(), target)
            literal.replace_self(reference)

    @staticmethod
    def is_inside(node: nodes.Node, *kinds: type) -> bool:
        """Whether a node has a parent of these kinds."""
        while node.parent is not None:
            node = node.parent
            if isinstance(node, kinds):
                return True
        return False

    @staticmethod
    def signatures(node: nodes.Node) -> list[addnodes.desc_signature]:
        """Signatures of the objects that a node describes, the innermost first."""
        found = []
        while node.parent is not None:
            node = node.parent
            if isinstance(node, addnodes.desc):
                found.append(node[0])
        return found

    def target(
        self, literal: nodes.Node, name: str, called: bool, objects: dict[str, Any], aliases: dict[str, str]
    ) -> str | None:
        """The documented object that is meant, or None."""
        name = name.removeprefix("self.")
        around = self.signatures(literal)
        for signature in around:
            arguments = {n.astext() for p in signature.findall(addnodes.desc_parameter) for n in p.findall(nodes.Text)}
            if name in arguments:
                return None
        for signature in around:
            full = f"{signature['module']}.{signature['fullname']}"
            for candidate in (f"{full}.{name}", f"{full.rpartition('.')[0]}.{name}"):
                if candidate in objects and candidate.rpartition(".")[0] not in rooms() and candidate != full:
                    return candidate
        head, _, rest = name.partition(".")
        if not rest and not called and name.islower() and "_" not in name:
            return None
        candidates = [name]
        if name.startswith("pydirect."):
            candidates += [aliases[own] + name[len(own) :] for own in aliases if (name + ".").startswith(own + ".")]
        else:
            ends = {place for alias, place in aliases.items() if alias.rpartition(".")[2] == head}
            candidates += [place + (f".{rest}" if rest else "") for place in ends] if len(ends) == 1 else []
        return next((candidate for candidate in candidates if candidate in objects), None)


def place_of_source(app: Sphinx, tree: nodes.document) -> None:
    """Tell viewcode, which runs next, where each object is written, be it in a base class."""
    for signature in tree.findall(addnodes.desc_signature):
        if signature.get("module", "").split(".")[0] != "pydirect":
            continue
        value = importlib.import_module(signature["module"])
        for part in signature["fullname"].split("."):
            value = inspect.getattr_static(value, part) if inspect.isclass(value) else getattr(value, part)
        for inner in ("__func__", "fget", "func", "fn"):
            value = getattr(value, inner, value)
        if (getattr(value, "__module__", None) or "").startswith("pydirect."):
            signature["documented"] = signature["module"], signature["fullname"]
            signature["module"], signature["fullname"] = value.__module__, value.__qualname__


def place_of_page(app: Sphinx, tree: nodes.document) -> None:
    """Take back what `place_of_source` has told."""
    for signature in tree.findall(addnodes.desc_signature):
        if "documented" in signature:
            signature["module"], signature["fullname"] = signature.attributes.pop("documented")


def resolve_alias(app: Sphinx, env: Any, node: addnodes.pending_xref, content: nodes.Node) -> nodes.Node | None:
    """Resolve a reference to a name by a place that is not that of its page."""
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"]
    for alias, place in app.reference_aliases.items():  # type: ignore[attr-defined]
        if f"{target}.".startswith(f"{alias}.") and (found := place + target[len(alias) :]) in (
            objects := env.domains.python_domain.objects
        ):
            entry = objects[found]
            return make_refnode(app.builder, node["refdoc"], entry.docname, entry.node_id, content, found)
    return None


def setup(app: Sphinx) -> dict[str, Any]:
    """Write the pages before Sphinx looks for them."""
    app.reference_aliases = places()  # type: ignore[attr-defined]
    write_pages(Path(app.srcdir) / "reference" / "generated")
    app.add_post_transform(NamesToLinks)
    app.connect("doctree-read", place_of_source, priority=400)
    app.connect("doctree-read", place_of_page, priority=600)
    app.connect("missing-reference", resolve_alias)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
