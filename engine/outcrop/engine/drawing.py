"""A definition as a drawing for Mermaid or Graphviz, a thread's way through it painted on request.

Owns both languages' words and escapes; what is drawn is `picture`'s. Names never stand bare in
the text: boxes have IDs of ours, and names are in labels, where nothing of them is markup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .picture import Box, Link, Look, Paint, picture_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .definition import GraphDefinition
    from .thread_path import ThreadPath

_INDENT: Final = "  "

_MERMAID_SHAPES: Final = {
    Look.START: ("((", "))"),
    Look.END: ("(((", ")))"),
    Look.NODE: ("[", "]"),
    Look.BRANCH: ("(", ")"),
    Look.WAIT: ("([", "])"),
    Look.MISSING: ("[", "]"),
}
_MERMAID_ASKS: Final = ("{{", "}}")
_MERMAID_CLASSES: Final = {
    "start": "fill:#333,stroke:#333",
    "end": "fill:#333,stroke:#333",
    "missing": "stroke:#c00,stroke-dasharray:4",
    "group": "fill:none,stroke:#888",
    "map": "fill:none,stroke:#888,stroke-width:3px",
    "subgraph": "fill:none,stroke:#888,stroke-dasharray:6",
    "asks": "stroke:#a60,stroke-width:2px",
    "visited": "fill:#cfe8cf,stroke:#3a7d3a,color:#000",
    "around": "stroke:#b26a00,stroke-width:3px",
    "current": "fill:#ffd54f,stroke:#b26a00,stroke-width:3px,color:#000",
}

_DOT_POINT: Final = {"label": "", "style": "filled", "fillcolor": "#333333", "width": "0.15"}
_DOT_LOOKS: Final[Mapping[Look, Mapping[str, str]]] = {
    Look.START: {**_DOT_POINT, "shape": "circle"},
    Look.END: {**_DOT_POINT, "shape": "doublecircle"},
    Look.NODE: {"shape": "box"},
    Look.BRANCH: {"shape": "box", "style": "rounded"},
    Look.WAIT: {"shape": "ellipse"},
    Look.MISSING: {"shape": "box", "style": "dashed", "color": "#cc0000"},
    Look.GROUP: {"style": "rounded"},
    Look.MAP: {"style": "rounded", "penwidth": "2.5"},
    Look.SUBGRAPH: {"style": "dashed"},
}
_DOT_PAINTS: Final[Mapping[Paint, Mapping[str, str]]] = {
    Paint.VISITED: {"style": "filled", "color": "#3a7d3a", "fillcolor": "#cfe8cf"},
    Paint.CURRENT: {"style": "filled", "color": "#b26a00", "fillcolor": "#ffd54f", "penwidth": "3"},
    Paint.AROUND: {"color": "#b26a00", "penwidth": "3"},
}


def to_mermaid(definition: GraphDefinition, path: ThreadPath | None = None) -> str:
    """The graph as a Mermaid flowchart, with a newline at its end."""
    picture = picture_of(definition, path)
    lines = ["flowchart TD"]
    for box in picture.boxes:
        lines += _mermaid_box(box, _INDENT)
    lines += (_INDENT + _mermaid_link(link) for link in picture.links)
    members: dict[str, list[str]] = {name: [] for name in _MERMAID_CLASSES}
    for box in picture.every_box():
        for name in (box.look.value, "asks" if box.asks else None, box.paint):
            if name in members:
                members[name].append(box.id)
    for name, ids in members.items():
        if ids:
            lines += (
                f"{_INDENT}classDef {name}_ {_MERMAID_CLASSES[name]}",
                f"{_INDENT}class {','.join(ids)} {name}_",
            )
    return "\n".join((*lines, ""))


def to_dot(definition: GraphDefinition, path: ThreadPath | None = None) -> str:
    """The graph in Graphviz's language, with a newline at its end."""
    picture = picture_of(definition, path)
    lines = ["digraph {", f"{_INDENT}graph [newrank=true, labeljust=l]"]
    for box in picture.boxes:
        lines += _dot_box(box, _INDENT)
    lines += (_INDENT + _dot_link(link) for link in picture.links)
    return "\n".join((*lines, "}", ""))


def _mermaid_box(box: Box, indent: str) -> Iterator[str]:
    label = "<br/>".join(map(_mermaid_text, box.lines)) or " "
    if box.inner is None:
        opening, closing = _MERMAID_ASKS if box.asks else _MERMAID_SHAPES[box.look]
        yield f'{indent}{box.id}{opening}"{label}"{closing}'
        return
    yield f'{indent}subgraph {box.id}["{label}"]'
    for one in box.inner:
        yield from _mermaid_box(one, indent + _INDENT)
    yield f"{indent}end"


def _mermaid_link(link: Link) -> str:
    arrow = "-.->" if link.is_route else "-->"
    label = "" if link.label is None else f'|"{_mermaid_text(link.label)}"|'
    return f"{link.start} {arrow}{label} {link.end}"


def _mermaid_text(text: str) -> str:
    """Text that Mermaid reads as nothing but text.

    Only letters and digits mean nothing in Mermaid, nor in the Markdown and the HTML that its
    labels go through; the few signs that are common in names are kept between two of them.
    """
    shown = _printable(text)
    return "".join(
        char if char.isalnum() or (char in " _-." and _between_words(shown, index)) else f"#{ord(char)};"
        for index, char in enumerate(shown)
    )


def _between_words(text: str, index: int) -> bool:
    return 0 < index < len(text) - 1 and text[index - 1].isalnum() and text[index + 1].isalnum()


def _dot_box(box: Box, indent: str) -> Iterator[str]:
    attributes = {"label": r"\n".join(map(_dot_text, box.lines)), **_DOT_LOOKS[box.look]}
    if box.asks:
        attributes |= {"color": "#aa6600", "penwidth": "2"}
    if box.paint is not None:
        attributes |= _DOT_PAINTS[box.paint]
    if box.inner is None:
        if box.asks:
            attributes["shape"] = "hexagon"
        yield f"{indent}{box.id} [{_dot_attributes(attributes)}]"
        return
    yield f"{indent}subgraph cluster_{box.id} {{"
    yield from (f'{indent}{_INDENT}{name}="{value}"' for name, value in attributes.items())
    for one in box.inner:
        yield from _dot_box(one, indent + _INDENT)
    yield f"{indent}}}"


def _dot_link(link: Link) -> str:
    attributes = {} if link.label is None else {"label": _dot_text(link.label)}
    if link.is_route:
        attributes["style"] = "dashed"
    told = f" [{_dot_attributes(attributes)}]" if attributes else ""
    return f"{link.start} -> {link.end}{told}"


def _dot_attributes(attributes: Mapping[str, str]) -> str:
    return ", ".join(f'{name}="{value}"' for name, value in attributes.items())


def _dot_text(text: str) -> str:
    """Text for a quoted string of Graphviz, which knows backslashes and HTML's entities in labels."""
    return _printable(text).replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"')


def _printable(text: str) -> str:
    """The text with whatever doesn't print, newlines too, as its escape."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )
