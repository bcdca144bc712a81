"""A report in one file: nothing is lost, and no name that should go stays in any layer of it."""

import base64
import csv
import gzip
import html
import io
import json
import re
import secrets
import zipfile
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from workbench.errors import PublishError
from workbench.share import _anonymise, pack, write_names

DECLARED = '<!DOCTYPE html>\n<html lang="en"><head><title>T</title>'
PACK = re.compile(r'<script type="application/json" id="pack">(.*?)</script>', re.DOTALL)


def svg_of(text):
    return (
        f'<svg viewBox="0 0 1 1"><clipPath id="c"></clipPath><text>{html.escape(text)}</text></svg>'
    )


def page_of(name, title="T"):
    """A page with a name in everything that a report puts names into."""
    picture = base64.b64encode(svg_of(f"of {name}").encode()).decode()
    figure = {
        "data": [{"type": "bar", "x": [f"{name}/gpu0"], "hovertext": html.escape(f"<{name}>")}],
        "layout": {"title": {"text": f"Late: {name}"}, "images": [
            {"source": f"data:image/svg+xml;base64,{picture}"}]},
    }  # fmt: skip
    block = json.dumps(figure)
    for character in "<>&":
        block = block.replace(character, f"\\u{ord(character):04x}")
    return (
        f"{DECLARED}</head><body><!-- {html.escape(name).replace('--', '')} -->"
        f'<h1 id="{html.escape(name)}" title="{html.escape(name)}">of {html.escape(name)}, late</h1>'
        f'<img alt="{html.escape(name)}" src="data:image/svg+xml;base64,{picture}">'
        f'<a href="csv/{quote(name, safe="")}.csv">rows</a><br/>'
        f'<script type="application/json">{block}</script><script>var main = "ours";</script>'
        "</body></html>"
    )


def csv_of(name):
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([["node", "n"], [name, 1], [f"at {name}/x", 2]])
    return text.getvalue()


def trace_of(name):
    return gzip.compress(json.dumps({"args": {"host": name, "n": 1.5}}).encode())


@pytest.fixture
def make_report(tmp_path):
    def make(name="gpu-a17", listed=None):
        folder = tmp_path / "_report"
        (folder / "csv").mkdir(parents=True, exist_ok=True)
        (folder / "assets").mkdir(exist_ok=True)
        (folder / ".workbench-report").write_text("")
        (folder / "index.html").write_text(page_of(name))
        (folder / "csv" / "rows.csv").write_text(csv_of(name))
        (folder / "cut.json.gz").write_bytes(trace_of(name))
        (folder / "assets" / "page.js").write_text("var host = 1;")
        if listed is not None:
            write_names(folder, listed)
        return folder

    return make


def unpacked(page):
    (block,) = PACK.findall(page.read_text())
    return {
        name: gzip.decompress(base64.b64decode(data)) for name, data in json.loads(block).items()
    }


def decoded(name, content):
    """All that a reader could make of a file, by steps that share nothing with the package."""
    text = (gzip.decompress(content) if name.endswith(".gz") else content).decode()
    layers = [text]
    layers += [
        base64.b64decode(packed).decode()
        for packed in re.findall(r"base64,([A-Za-z0-9+/=]+)", text)
    ]
    layers += [html.unescape(html.unescape(layer)) for layer in layers]
    layers += [re.sub(r"\\u00(..)", lambda match: chr(int(match[1], 16)), text)]
    return "\n".join(layers).casefold()


# --- one file ------------------------------------------------------------------------------


def test_the_page_and_the_zip_hold_every_file_unchanged(make_report, tmp_path):
    folder = make_report()
    packed = pack(folder, tmp_path / "x" / "monday.html")
    held = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }
    assert unpacked(packed.page) == held  # these pages state no policy
    with zipfile.ZipFile(packed.archive) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == {
            f"monday/{name}": content for name, content in held.items()
        }
    assert packed.replaced.empty
    again = pack(folder, tmp_path / "y" / "monday.html")
    assert again.page.read_bytes() == packed.page.read_bytes()
    assert again.archive.read_bytes() == packed.archive.read_bytes()


def test_the_page_asks_no_network(make_report, tmp_path):
    text = pack(make_report(), tmp_path / "a.html").page.read_text()
    shell = PACK.sub("", text)
    assert not re.search(r"https?:|//[a-z]", shell)
    assert "default-src 'none'" in shell


@pytest.mark.long
@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda folder: (folder / ".workbench-report").unlink(), "is not a report"),
        (lambda folder: (folder / "l.csv").symlink_to("/etc/passwd"), "is a link"),
        (lambda folder: (folder / "big.txt").write_text(secrets.token_hex(9_500_000)), "most"),
        (lambda folder: (folder / ".workbench-names.csv").write_text("a\n1\n"), "must be kind"),
        (lambda folder: (folder / "x.png").write_bytes(b"x"), "of this kind"),
        (lambda folder: (folder / "x.csv").write_bytes(b"\xff"), "cannot be read"),
        (lambda folder: (folder / "x.html").write_text('<img src="data:image/png;base64,QQ">'),
         "bitmap"),
    ],
)  # fmt: skip
def test_a_folder_that_cannot_be_shared_is_refused_and_nothing_is_written(
    spoil, reason, make_report, tmp_path
):
    folder = make_report(listed={"gpu-a17": "host"})
    spoil(folder)
    with pytest.raises(PublishError, match=reason):
        pack(folder, tmp_path / "out" / "a.html", anonymise=True)
    assert not (tmp_path / "out").exists()


# --- names ---------------------------------------------------------------------------------


def test_every_layer_names_the_pseudonym_and_none_the_host(make_report, tmp_path):
    folder = make_report("gpu-a17", listed={"gpu-a17": "host", "gpu-a1": "host"})
    packed = pack(folder, tmp_path / "a.html", anonymise=True)
    assert packed.replaced.to_dict("list") == {
        "kind": ["host", "host"],
        "name": ["gpu-a1", "gpu-a17"],
        "pseudonym": ["host-1", "host-2"],
    }
    for name, content in unpacked(packed.page).items():
        assert "gpu-a17" not in decoded(name, content)
        if not name.startswith("assets/"):
            assert "host-2" in decoded(name, content)
            assert "host-1" not in decoded(name, content)
    page = unpacked(packed.page)["index.html"].decode()
    assert '<a href="csv/host-2.csv">' in page
    assert 'viewBox="0 0 1 1"><clipPath id="c"></clipPath>' in decoded_picture(page)


def decoded_picture(page):
    return base64.b64decode(re.findall(r"base64,([^\"\\]+)", page)[0]).decode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("node1 node10 xnode1 NODE1-ib0 node1_gpu node1.local", "h node10 xnode1 h-ib0 h_gpu h.local"),
        ("very-long-secret-mod…", "m…"),
        ("very-long-secret-model-70b", "m"),
        ("very-l…l-70b wins", "m wins"),
        ("/home/alice/x", "/home/u/x"),
        ("node…", "h"),
    ],
)  # fmt: skip
def test_what_counts_as_the_name(text, expected):
    names = {"node1": "host", "very-long-secret-model-70b": "model", "alice": "user"}
    told = _anonymise.Pseudonyms(names).text(text)
    plain = told.replace("host-1", "h").replace("model-1", "m").replace("user-1", "u")
    assert plain in (expected, expected.replace("m…", "m"))


def test_a_pseudonym_is_never_a_name_itself():
    names = {"host": "user", "host-1": "host", "hostx-7": "host", "user-1": "model"}
    told = _anonymise.Pseudonyms(names)
    assert set(told.by_name.values()).isdisjoint(told.by_name)
    text = told.text(" ".join(names))
    assert not [name for name in names if re.search(rf"(?<!\w){name}(?!\w)", text)]


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        ({"7": "host"}, "are not numbers"),
        ({"17": "host"}, "are not numbers"),
        ({" a b": "host"}, "no blank"),
        ({"abc": "rack"}, "must be one of"),
        ({"layout": "model"}, "figures are built"),
        ({"bar": "model"}, "figures are built"),
    ],
)
def test_a_name_that_cannot_be_told_apart_is_refused(names, reason, make_report, tmp_path):
    with pytest.raises(PublishError, match=reason):
        pack(make_report(), tmp_path / "a.html", names=names)


def test_a_report_that_lists_no_names_is_not_called_anonymous(make_report, tmp_path):
    with pytest.raises(PublishError, match="lists no names"):
        pack(make_report(), tmp_path / "a.html", anonymise=True)


def test_a_name_in_a_script_stops_the_sharing(make_report, tmp_path):
    with pytest.raises(PublishError, match=r"'ours' would remain in index\.html"):
        pack(make_report(), tmp_path / "a.html", names={"ours": "user"})
    assert not (tmp_path / "a.html").exists()


@pytest.mark.parametrize(
    "path",
    [
        "/home/b.jones/run",
        "/mnt/home/b.jones/run",
        "/".join(["", "Users", "b.jones"]),
        r"C:\Users\b.jones\run",
    ],
)
def test_users_are_found_by_their_home_and_kept_if_asked(path, make_report, tmp_path):
    folder = make_report(path, listed={})
    packed = pack(folder, tmp_path / "a.html", anonymise=True)
    assert packed.replaced["name"].tolist() == ["b.jones"]
    kept = pack(folder, tmp_path / "a.html", anonymise=True, keep=["B.Jones"])
    assert kept.replaced.empty


def test_a_folder_of_the_superuser_is_no_user(make_report, tmp_path):
    folder = make_report("/".join(["", "root", "traces", "run"]), listed={})
    assert pack(folder, tmp_path / "a.html", anonymise=True).replaced.empty


odd_letters = st.sampled_from(list("abAB01-._+*?()[]{}|^$\\&<>'\"#%;=, /éßÅжİ中ς"))
texts = st.text(odd_letters, min_size=2, max_size=8).map(str.strip)


@given(st.lists(texts, min_size=1, max_size=6, unique_by=str.casefold), st.data())
def test_law_no_name_remains_and_equal_names_stay_equal(words, data):
    words = [word for word in words if len(word) > 1 and not word.isdecimal()]
    assume(words)
    # Names that are pieces of others, and of other letters at the edges.
    words += [words[0] + data.draw(texts), words[0][:-1] + "q"]
    names = {word.strip(): "host" for word in words if len(word.strip()) > 1}
    assume(not any(name.isdecimal() for name in names))
    pseudonyms = _anonymise.Pseudonyms(names)
    for name in names:
        for file, content in {
            "a.html": page_of(name).encode(),
            "a.csv": csv_of(name).encode(),
            "a.json.gz": trace_of(name),
            "a.svg": svg_of(name).encode(),
        }.items():
            assert _anonymise.remains(file, content, [name])
            done = _anonymise.rewritten(file, content, pseudonyms)
            own = decoded(file, page_of("qq").encode()) if file == "a.html" else ""
            # The page's own words may be names by chance: then it is refused, not leaked.
            if not _anonymise.remains(file, done, pseudonyms.by_name) and not holds(own, name):
                assert not holds(decoded(file, done), name)


def holds(text, name):
    return re.search(rf"(?<![^\W_]){re.escape(name.casefold())}(?![^\W_])", text)


@given(st.text(odd_letters, max_size=30))
def test_law_a_page_without_the_name_stays_as_it_is(text):
    assume("zzname" not in text)
    page = page_of(text).encode()
    pseudonyms = _anonymise.Pseudonyms({"zzname": "host"})
    assert _anonymise.rewritten("a.html", page, pseudonyms) == page


@given(st.sets(st.text("abc.*", min_size=1, max_size=5), min_size=1))
def test_law_the_pattern_of_many_words_is_that_of_each(words):
    pattern = re.compile(_anonymise._trie(words))
    assert all(pattern.fullmatch(word) for word in words)
    for text in ("ab", "a.c", "a*", "cab.b"):
        assert bool(pattern.fullmatch(text)) == (text in words)


@pytest.mark.parametrize("quote", ["'", "&#39;", "&#x27;"])
def test_pages_take_scripts_from_memory_and_keep_the_rest_of_their_policy(
    quote, make_report, tmp_path
):
    folder = make_report()
    policy = f"default-src {quote}none{quote}; script-src {quote}self{quote} {quote}sha256-x{quote}"
    head = f'<meta content="{policy}" http-equiv="Content-Security-Policy"/>'
    (folder / "index.html").write_text(f"{DECLARED}{head}</head><p>'self'</p>")
    page = unpacked(pack(folder, tmp_path / "a.html").page)["index.html"].decode()
    assert page == f"{DECLARED}{head}</head><p>'self'</p>".replace(
        f"{quote}self{quote}", "blob:", 1
    )


@pytest.mark.browser
def test_the_one_file_shows_its_pages_and_figures_offline(browser, make_report, tmp_path):
    folder = make_report()
    (folder / "index.html").write_text(
        f'{DECLARED}<meta http-equiv="Content-Security-Policy" content="default-src &#39;none&#39;; '
        'script-src &#39;self&#39;"><script src="assets/page.js"></script></head><body>'
        '<a id="go" href="second.html#deep">on</a><a id="rows" href="csv/rows.csv" download>r</a>'
    )
    (folder / "second.html").write_text(f'{DECLARED}</head><body><h2 id="deep">Second page</h2>')
    (folder / "assets" / "page.js").write_text("document.documentElement.dataset.ran = 'yes';")
    packed = pack(folder, tmp_path / "a.html")
    page = browser.new_page()
    asked, errors = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda told: errors.append(told.text) if told.type == "error" else None)
    page.goto(packed.page.as_uri())
    frame = page.frame_locator("iframe")
    assert frame.locator("html[data-ran=yes]").count() or frame.locator("#go").wait_for() is None
    assert frame.locator("html").get_attribute("data-ran") == "yes"
    with page.expect_download() as download:
        frame.locator("#rows").click()
    assert Path(download.value.path()).read_text() == csv_of("gpu-a17")
    frame.locator("#go").click()
    assert frame.locator("#deep").text_content() == "Second page"
    page.go_back()
    frame.locator("#go").wait_for()
    page.close()
    assert not errors
    assert [url for url in asked if not url.startswith(("file:", "blob:", "data:", "about:"))] == []
