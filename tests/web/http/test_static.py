"""The files of the page: which exist, how they are served, and what they must not contain."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
from support.http_service import PATIENT, RunningService, run_service

import redismem.web
from redismem import Memory
from redismem.web.access import Access, new_key
from redismem.web.http.static import load_pages
from redismem.web.service import Service

STATIC = Path(redismem.web.__file__).parent / "static"
SOURCES = sorted(path for path in STATIC.iterdir() if path.suffix in (".js", ".css", ".html", ".svg"))
POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "connect-src": "'self'",
    "img-src": "'self' data:",
    "base-uri": "'none'",
    "frame-ancestors": "'none'",
    "form-action": "'none'",
    # The browser itself refuses to turn text into markup.
    "require-trusted-types-for": "'script'",
    "trusted-types": "'none'",
}


async def test_the_page_is_served_under_a_strict_policy_of_its_own(http: RunningService) -> None:
    answer = await http.ask("GET", "/")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = answer.headers["content-security-policy"]
    assert dict(part.strip().split(" ", 1) for part in policy.split(";")) == POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cross-origin-opener-policy"] == "same-origin"
    assert answer.headers["x-frame-options"] == "DENY"
    # Responses of the API may load and run nothing.
    other = await http.ask("GET", "/livez")
    assert other.headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
    assert other.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("encoding", ["gzip, deflate, br", "identity"])
async def test_a_file_with_a_known_etag_is_not_sent_again(http: RunningService, encoding: str) -> None:
    for path in load_pages():
        given = {"Accept-Encoding": encoding}
        first = await http.ask("GET", path, headers=given)
        assert (first.status_code, first.headers["cache-control"]) == (200, "no-cache")
        for asked in (first.headers["etag"], f'"other", W/{first.headers["etag"]}', "*"):
            again = await http.ask("GET", path, headers=given | {"If-None-Match": asked})
            assert (again.status_code, again.content) == (304, b"")
            assert again.headers["etag"] == first.headers["etag"]
            assert "content-security-policy" in again.headers
        assert (await http.ask("GET", path, headers=given | {"If-None-Match": '"other"'})).status_code == 200
        head = await http.ask("HEAD", path, headers=given)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == first.headers["content-length"]


async def test_a_file_is_compressed_for_those_who_accept_it(http: RunningService) -> None:
    for path, file in load_pages().items():
        etags = set()
        for encoding, is_gzipped in (
            ("gzip", True),
            ("br, GZIP;q=0.5", True),
            ("br", False),
            ("gzip;q=0", False),
            ("gzip; q=0.00, *", False),
        ):
            answer = await http.ask("GET", path, headers={"Accept-Encoding": encoding})
            assert answer.content == file.body
            assert answer.headers["vary"] == "accept-encoding"
            assert answer.headers.get("content-encoding") == ("gzip" if is_gzipped else None)
            assert int(answer.headers["content-length"]) == len(file.gzipped if is_gzipped else file.body)
            etags.add((answer.headers["etag"], is_gzipped))
        assert len(etags) == 2


async def test_the_page_names_its_files_by_their_content(http: RunningService) -> None:
    page = (await http.ask("GET", "/")).text
    paths = re.findall(r'(?:src|href)="(/static/[^"]+)"', page)
    assert [re.sub(r"\.[0-9a-f]{16}\.", ".", path) for path in paths] == [
        "/static/icon.svg",
        "/static/page.css",
        "/static/app.js",
    ]
    for path in paths:
        answer = await http.ask("GET", path)
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        digest = hashlib.sha256(answer.content).hexdigest()
        assert f".{digest[:16]}." in path
        # The page of another release gets a script that works, and does not keep it.
        other = await http.ask("GET", path.replace(digest[:16], "0123456789abcdef"))
        assert (other.content, other.headers["cache-control"]) == (answer.content, "no-cache")


async def test_no_other_file_is_served(http: RunningService) -> None:
    for path in [
        "/static/",
        "/static/none.js",
        "/static/../page.py",
        "/static/%2e%2e/page.py",
        "/static//page.css",
        "/static/dom.js",
    ]:
        answer = await http.ask("GET", path)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), path
    assert (await http.ask("POST", "/")).json()["code"] == "method_not_allowed"


async def test_the_page_needs_no_key_and_refuses_other_hosts() -> None:
    key, line = new_key("one", "shop", ["read"])
    async with Memory.connect("memory://", namespace="shop") as memory:
        async with run_service(Service({"shop": memory}, Access.of(line), PATIENT)) as keyed:
            assert (await keyed.ask("GET", "/")).status_code == 200
            assert (await keyed.ask("GET", "/static/app.js")).status_code == 200
            assert (await keyed.ask("GET", "/v1/about")).status_code == 401
            about = await keyed.ask("GET", "/v1/about", headers={"Authorization": f"Bearer {key}"})
            document = about.json()
            assert (document["namespace"], document["scopes"], document["has_keys"]) == ("shop", ["read"], True)
        async with run_service(Service({"default": memory}, Access.of(""), PATIENT)) as unlocked:
            answer = await unlocked.ask("GET", "/", headers={"Host": "shop.example"})
            assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed")


def test_every_stylesheet_is_part_of_the_page() -> None:
    linked = re.findall(r'href="/static/(\w+\.css)"', (STATIC / "index.html").read_text())
    assert sorted(linked) == sorted(path.name for path in STATIC.glob("*.css"))


def test_every_file_is_small_and_contacts_no_other_host() -> None:
    assert {"index.html", "app.js", "page.css", "icon.svg"} <= {path.name for path in SOURCES}
    assert {path.name for path in STATIC.iterdir()} == {path.name for path in SOURCES}
    for path in SOURCES:
        text = path.read_text()
        assert len(text.splitlines()) <= 300, path.name
        # An XML namespace is a name that no browser fetches.
        assert "//" not in re.sub(r"(?m)http://www\.w3\.org/2000/svg|^\s*//.*$|\s// .*$", "", text), path.name


def test_no_template_literal_spans_lines() -> None:
    """Joining the modules leaves out lines that begin with //, which must be comments."""
    for path in STATIC.glob("*.js"):
        lines = re.sub(r"(?m)^ *//.*$", "", path.read_text()).splitlines()
        assert [line for line in lines if line.count("`") % 2] == [], path.name


def test_no_text_becomes_markup_or_code() -> None:
    page = (STATIC / "index.html").read_text()
    assert re.findall(r"<script(?! type=\"module\" src=\"/static/)|<style|\sstyle=|\son\w+=|javascript:", page) == []
    wrong = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|DOMParser|\.cookie|style:"
    for path in STATIC.glob("*.js"):
        assert re.findall(wrong, path.read_text()) == [], path.name


def test_imports_and_element_ids_exist() -> None:
    exported = {
        path.name: set(re.findall(r"(?m)^export (?:async )?(?:const|function\*?|class) (\w+)", path.read_text()))
        for path in STATIC.glob("*.js")
    }
    for path in STATIC.glob("*.js"):
        for names, file in re.findall(r'import \{([^}]*)\} from "\./([^"]+)"', path.read_text()):
            assert {name.strip() for name in names.split(",") if name.strip()} <= exported[file], path.name
    ids = set(re.findall(r'\bid="([^"]+)"', (STATIC / "index.html").read_text()))
    cards = (STATIC / "cards.js").read_text()
    ids |= set(re.findall(r'\bid: "([^"]+)"', cards))
    parts = re.findall(r"id: `\$\{name\}-(\w+)`", cards)
    ids |= {f"{name}-{part}" for name in re.findall(r'\bcard\("(\w+)"', cards) for part in parts}
    for path in STATIC.glob("*.js"):
        assert set(re.findall(r'byId\("([^"]+)"\)', path.read_text())) <= ids, path.name
