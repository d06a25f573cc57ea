"""The files of the page: which exist, how they are served, and what they must not contain."""

from __future__ import annotations

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


async def test_a_file_with_a_known_etag_is_not_sent_again(http: RunningService) -> None:
    for path in load_pages():
        first = await http.ask("GET", path)
        assert (first.status_code, first.headers["cache-control"]) == (200, "no-cache")
        for asked in (first.headers["etag"], f'"other", W/{first.headers["etag"]}', "*"):
            again = await http.ask("GET", path, headers={"If-None-Match": asked})
            assert (again.status_code, again.content) == (304, b"")
            assert again.headers["etag"] == first.headers["etag"]
            assert "content-security-policy" in again.headers
        assert (await http.ask("GET", path, headers={"If-None-Match": '"other"'})).status_code == 200
        head = await http.ask("HEAD", path)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == str(len(first.content))


@pytest.mark.parametrize(
    "path", ["/static/", "/static/none.js", "/static/../page.py", "/static/%2e%2e/page.py", "/static//page.css"]
)
async def test_no_other_file_is_served(http: RunningService, path: str) -> None:
    answer = await http.ask("GET", path)
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
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


def test_every_file_is_small_and_contacts_no_other_host() -> None:
    assert {"index.html", "app.js", "page.css", "icon.svg"} <= {path.name for path in SOURCES}
    assert {path.name for path in STATIC.iterdir()} == {path.name for path in SOURCES}
    for path in SOURCES:
        text = path.read_text()
        assert len(text.splitlines()) <= 300, path.name
        # An XML namespace is a name that no browser fetches.
        assert "//" not in re.sub(r"(?m)http://www\.w3\.org/2000/svg|^\s*//.*$|\s// .*$", "", text), path.name


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
    for path in STATIC.glob("*.js"):
        assert set(re.findall(r'byId\("([^"]+)"\)', path.read_text())) <= ids, path.name
