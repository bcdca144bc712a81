"""Names of hosts, users, paths and models replaced in every kind of file that a report has."""

from __future__ import annotations

import base64
import binascii
import csv
import gzip
import html
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from html.parser import HTMLParser
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote, unquote

from workbench.errors import PublishError

KINDS = ("host", "user", "model", "path")
_SVG = re.compile(r"(data:image/svg\+xml;base64,)([A-Za-z0-9+/=]*)")
_BITMAP = re.compile(r"data:image/(?!svg\+xml)|data:[\w/.+-]*;base64,(?!PHN2Zy|PD94bW)")
_SHORTENED = re.compile(r"([^\s<>\"',;()…]{3,}?)(?:…|\.\.\.)([^\s<>\"',;()…]*)")
_ATTRIBUTE = re.compile(r"""(\s[\w:.-]+\s*=\s*)("[^"]*"|'[^']*'|[^\s"'>]+)""")
_DATA = re.compile(r'<script type="application/json"[^>]*>(.*?)</script>', re.DOTALL)
_FIGURE = ("data", "layout", "template")
_STRUCTURE = ("type", "mode", "xref", "yref", "anchor", "orientation", "side")
# Texts of attributes that templates alone write; others may hold a name.
_OUR_ATTRIBUTES = {"class", "style", "rel", "content", "lang", "charset", "http-equiv", "sizes"}
_MOST_CELL = 1 << 24


class Pseudonyms:
    """Names and what stands for them: equal names get equal ones, in every order of the files.

    A name is replaced where no letter or digit touches it, whatever its case: ``node1`` in
    ``NODE1-ib0`` and not in ``node17``.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        folded: dict[str, str] = {}
        for name, kind in names.items():
            _refuse_odd(name, kind)
            folded.setdefault(name.casefold(), kind)
        as_written = [*names, *(name.lower() for name in names)]
        self.by_name: dict[str, str] = {}
        for kind in KINDS:
            same = sorted(name for name, of in folded.items() if of == kind)
            prefix = kind
            while any(name == prefix or name.startswith(f"{prefix}-") for name in folded):
                prefix += "x"
            self.by_name |= {name: f"{prefix}-{at}" for at, name in enumerate(same, 1)}
        # A name with entities, or with letters that folding changes, has several spellings.
        spelled = {name: self.by_name[name.casefold()] for name in [*as_written, *folded]}
        spelled |= {html.escape(name): to for name, to in spelled.items()}
        self._spelled = {name.casefold(): to for name, to in spelled.items()}
        body = _trie(spelled) if spelled else "(?!)"
        self._pattern = re.compile(rf"(?<![^\W_])(?:{body})(?![^\W_])", re.IGNORECASE)

    def text(self, text: str) -> str:
        """Replace names in a text, also where a label has shortened them."""
        if "…" in text or "..." in text:
            text = _SHORTENED.sub(self._whole, text)
        return self._pattern.sub(self._pseudonym, text)

    def _pseudonym(self, match: re.Match[str]) -> str:
        return self._spelled.get(match[0].casefold(), "name")

    def _whole(self, match: re.Match[str]) -> str:
        head, tail = match[1].casefold(), match[2].casefold()
        # Text before the name may touch it: "/data/run/secret-mod...".
        for name, to in self.by_name.items():
            if len(name) > len(head + tail) and name.startswith(head) and name.endswith(tail):
                return to
        return match[0]


def _refuse_odd(name: str, kind: str) -> None:
    if kind not in KINDS:
        msg = f"{name!r} is said to be a {kind!r}; must be one of {', '.join(KINDS)}"
        raise PublishError(msg)
    if len(name.strip()) < 2 or name != name.strip() or name.isdecimal():
        msg = (
            f"{kind} {name!r} cannot be told from other text: names have two characters or more, "
            "are not numbers, and have no blank at their ends; leave it out with --keep"
        )
        raise PublishError(msg)


def _trie(words: Iterable[str]) -> str:
    """Write a pattern of any word, the longest first, that is fast for thousands of words."""
    root: dict[str, Any] = {}
    for word in words:
        node = root
        for letter in word:
            node = node.setdefault(letter, {})
        node[""] = {}
    # From the leaves up without recursion: a path may have more letters than the stack frames.
    patterns: dict[int, str] = {}
    todo = [(root, False)]
    while todo:
        node, is_ready = todo.pop()
        if not is_ready:
            todo += [(node, True), *((child, False) for key, child in node.items() if key)]
            continue
        branches = [re.escape(key) + patterns.pop(id(sub)) for key, sub in node.items() if key]
        body = branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})" * bool(branches)
        patterns[id(node)] = f"(?:{body})?" if "" in node and body else body
    return patterns[id(root)]


def rewritten(name: str, content: bytes, names: Pseudonyms) -> bytes:
    """Return a file of a report with names replaced; one of an unknown kind is refused."""
    writer = _WRITERS.get(PurePosixPath(name.removesuffix(".gz")).suffix)
    if writer is None:
        msg = f"{name}: names in a file of this kind cannot be replaced; remove the file"
        raise PublishError(msg)
    try:
        packed = name.endswith(".gz")
        text = (gzip.decompress(content) if packed else content).decode("utf-8")
        done = writer(text, names.text).encode("utf-8")
        return gzip.compress(done, mtime=0) if packed else done
    except (ValueError, OSError, EOFError, csv.Error, RecursionError) as error:
        msg = f"{name}: cannot be read to replace names: {error}; write the report again"
        raise PublishError(msg) from error


def remains(name: str, content: bytes, names: Iterable[str]) -> str:
    """Return a name that is still in a file, or an empty text.

    This reads the file again, by other means than the replacement: what a reader, a browser or a
    table program would decode is searched for each name letter by letter.
    """
    text = (gzip.decompress(content) if name.endswith(".gz") else content).decode("utf-8")
    folded = [(part, part.casefold()) for part in {name, *_layers(name, text)}]
    for sought in names:
        for _, part in folded:
            if _holds(part, sought.casefold()):
                return sought
    return ""


def structure(content: str) -> set[str]:
    """Return the words that the figures of a page are built of, which no name may be."""
    words: set[str] = set()
    for block in _DATA.findall(content):
        todo = [(json.loads(block), False)]
        while todo:
            node, is_figure = todo.pop()
            if isinstance(node, list):
                todo += [(item, is_figure) for item in node if isinstance(item, (dict, list))]
            elif isinstance(node, dict):
                # Above figures stand the states of an explorer, whose keys may be names.
                words |= {key.casefold() for key in node if is_figure or key in _FIGURE}
                words |= {str(node[key]).casefold() for key in _STRUCTURE if key in node}
                todo += [(item, is_figure or key in _FIGURE) for key, item in node.items()]
    return words


def _holds(text: str, name: str) -> bool:
    at = text.find(name)
    while at >= 0:
        before, after = text[at - 1 : at], text[at + len(name) : at + len(name) + 1]
        if not before.isalnum() and not after.isalnum():
            return True
        at = text.find(name, at + 1)
    return False


def _layers(name: str, text: str) -> Iterator[str]:
    """Yield everything that a file says: as written, decoded, and unpacked from pictures."""
    yield text if not name.endswith((".html", ".svg")) else ""
    for part in _parts(PurePosixPath(name.removesuffix(".gz")).suffix, text):
        yield part
        if "%" in part:
            yield unquote(part)
        # Entities once more, for HTML inside of JSON.
        if "&" in part or "<" in part:
            yield html.unescape(re.sub(r"<[^<>]*>", "", part))
        for match in _SVG.finditer(part):
            yield from _layers("picture.svg", _decoded(match[2]))


def _parts(suffix: str, text: str) -> Iterator[str]:
    if suffix in (".html", ".svg"):
        reader = _Texts()
        reader.feed(text)
        reader.close()
        yield from reader.texts
        for block in _DATA.findall(text):
            yield from _strings(json.loads(block))
    elif suffix == ".csv":
        yield from (cell for row in _rows(text) for cell in row)
    elif suffix == ".json":
        yield from _strings(json.loads(text))


def _strings(node: Any) -> Iterator[str]:
    todo = [node]
    while todo:
        node = todo.pop()
        if isinstance(node, str):
            yield node
        elif isinstance(node, (list, dict)):
            todo += node
            todo += node.values() if isinstance(node, dict) else []


class _Texts(HTMLParser):
    """Collects texts, values of attributes and data of a page; scripts of templates count too."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del tag
        self.texts += [value for key, value in attrs if value and key not in _OUR_ATTRIBUTES]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        self.texts.append(data)


class _Rewriter(HTMLParser):
    """Copies a page letter by letter but for texts, values of attributes and JSON with names."""

    def __init__(self, replace: Callable[[str], str]) -> None:
        super().__init__(convert_charrefs=False)
        self.replace, self.out, self.pending, self.mode = replace, [""], "", ""
        self.end_at = 0

    def flush(self) -> None:
        raw, self.pending = self.pending, ""
        if self.mode == "json":
            self.out.append(_json_in_page(raw, self.replace))
            return
        text = raw if self.mode else html.unescape(raw)
        new = text if self.mode in ("script", "style") else self.replace(text)
        self.out.append(raw if new == text else html.escape(new, quote=False))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.flush()
        raw = self.get_starttag_text() or ""
        if any(value and self._value(key, value) != value for key, value in attrs):
            # In place: SVG tells viewBox from viewbox, and a parser of HTML does not.
            raw = _ATTRIBUTE.sub(self._attribute, raw)
        self.out.append(raw)
        if tag in ("script", "style") and not raw.endswith("/>"):
            is_data = tag == "script" and ("type", "application/json") in attrs
            self.mode = "json" if is_data else tag

    handle_startendtag = handle_starttag

    def parse_endtag(self, i: int) -> int:
        self.end_at = i
        return super().parse_endtag(i)

    def handle_endtag(self, tag: str) -> None:
        del tag
        self.flush()
        self.mode = ""
        self.out.append(self.rawdata[self.end_at : self.rawdata.index(">", self.end_at) + 1])

    def _attribute(self, match: re.Match[str]) -> str:
        old = html.unescape(match[2].strip("\"'"))
        new = self._value(match[1].strip(" \t\n=").lower(), old)
        return match[0] if new == old else f'{match[1]}"{html.escape(new)}"'

    def _value(self, key: str, value: str) -> str:
        if key in _OUR_ATTRIBUTES:
            return value
        if _SVG.match(value):
            return _in_pictures(value, self.replace)
        if key in ("href", "src") and "%" in value and (new := self.replace(unquote(value))):
            return value if new == unquote(value) else quote(new, safe="/#:;,=?&")
        return self.replace(value)

    def handle_data(self, data: str) -> None:
        self.pending += data

    def handle_entityref(self, name: str) -> None:
        self.pending += f"&{name};"

    def handle_charref(self, name: str) -> None:
        self.pending += f"&#{name};"

    def handle_comment(self, data: str) -> None:
        self.flush()
        self.out.append(f"<!--{self.replace(data)}-->")

    def handle_decl(self, decl: str) -> None:
        self.flush()
        self.out.append(f"<!{decl}>")

    def handle_pi(self, data: str) -> None:
        self.flush()
        self.out.append(f"<?{data}>")


def _page(text: str, replace: Callable[[str], str]) -> str:
    if _BITMAP.search(text):
        msg = "it holds a bitmap or packed data, in which no name can be found"
        raise ValueError(msg)
    writer = _Rewriter(replace)
    writer.feed(text)
    writer.close()
    writer.flush()
    return "".join(writer.out)


def _in_pictures(text: str, replace: Callable[[str], str]) -> str:
    def picture(match: re.Match[str]) -> str:
        old = _decoded(match[2])
        new = _page(old, replace)
        return match[0] if new == old else match[1] + base64.b64encode(new.encode()).decode()

    return _SVG.sub(picture, text)


def _decoded(packed: str) -> str:
    try:
        return base64.b64decode(packed, validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError) as error:
        msg = f"a picture in it is not an SVG: {error}"
        raise ValueError(msg) from error


def _json(text: str, replace: Callable[[str], str]) -> str:
    old = json.loads(text)
    new = _replaced(old, replace)
    return text if new == old else json.dumps(new, separators=(",", ":"), ensure_ascii=False)


def _json_in_page(text: str, replace: Callable[[str], str]) -> str:
    new = _json(text, replace) if text.strip() else text
    for character in "<>&\u2028\u2029" if new != text else "":
        new = new.replace(character, f"\\u{ord(character):04x}")
    return new


def _replaced(value: Any, replace: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return replace(_in_pictures(value, replace) if "data:" in value else value)
    if isinstance(value, list):
        return [_replaced(item, replace) for item in value]
    if isinstance(value, dict):
        return {replace(key): _replaced(item, replace) for key, item in value.items()}
    return value


def _rows(text: str) -> list[list[str]]:
    most = csv.field_size_limit(_MOST_CELL)
    try:
        return list(csv.reader(io.StringIO(text, newline="")))
    finally:
        csv.field_size_limit(most)


def _csv(text: str, replace: Callable[[str], str]) -> str:
    rows = _rows(text)
    new = [[replace(cell) for cell in row] for row in rows]
    if new == rows:
        return text
    written = io.StringIO(newline="")
    csv.writer(written, lineterminator="\n").writerows(new)
    return written.getvalue()


_WRITERS: dict[str, Callable[[str, Callable[[str], str]], str]] = {
    ".html": _page,
    ".svg": _page,
    ".csv": _csv,
    ".json": _json,
    ".txt": lambda text, replace: replace(text),
}
