"""Addresses and data URLs: no text raises, and every accepted address is a URL for all parsers."""

from __future__ import annotations

import base64
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.json_values import texts

from redismem.formats.media import (
    LONGEST_ADDRESS_CHARS,
    guess_mime,
    parse_address,
    parse_base64,
    parse_data_url,
    parse_mime,
)

PIECES = "http:// https:// HTTPS: gs:// data: // / x . : :80 :0 :65536 @ [ ] [::1] ? # % %41 ;base64 , QUJD ="
ODD_PIECES = " \n\x00\ud800\u2100\u0661\xe4"
urls = st.lists(st.sampled_from([*PIECES.split(), *ODD_PIECES]) | texts, max_size=8).map("".join)


@given(urls)
def test_an_address_is_one_to_every_parser(url: str) -> None:
    found = parse_address(url)
    if found is not None:
        parsed = urlsplit(found)
        assert all("!" <= char <= "~" for char in found)
        assert parsed.scheme in ("http", "https", "gs")
        assert parsed.hostname
        assert parsed.port is None or 0 < parsed.port < 65_536
        assert "@" not in parsed.netloc
        assert parse_address(found) == found
        assert unquote(found).lower() == unquote(url.strip()).lower()
    assert guess_mime(url) == "" or "/" in guess_mime(url)


@given(urls)
def test_a_data_url_is_read_or_said_to_be_odd(url: str) -> None:
    found = parse_data_url(f"data:{url}")
    assert found is not None
    mime, data = found
    assert mime == parse_mime(mime)
    assert data is None or base64.b64encode(base64.b64decode(data)) == data.encode() or ";base64" in url.lower()
    assert (parse_data_url(url) is None) == (url[:5].lower() != "data:")


@pytest.mark.parametrize(
    ("url", "mime", "content"),
    [
        ("data:text/plain,a%20b", "text/plain", b"a b"),
        ("data:text/plain;charset=utf-8;base64,QUJD", "text/plain", b"ABC"),
        ("DATA:IMAGE/JPG;BASE64,QUJD", "image/jpeg", b"ABC"),
        ("data:image/png;base64,_-8=", "image/png", b"\xff\xef"),
        ("data:,a", "", b"a"),
        ("data:text/plain,\xe4", "text/plain", "\xe4".encode()),
    ],
)
def test_what_a_data_url_holds(url: str, mime: str, content: bytes) -> None:
    found = parse_data_url(url)
    assert found is not None
    assert found[0] == mime
    assert base64.b64decode(found[1] or "") == content


def test_the_longest_address() -> None:
    longest = "https://example.com/".ljust(LONGEST_ADDRESS_CHARS, "a")
    assert parse_address(longest) == longest
    assert parse_address(longest + "a") is None


@pytest.mark.parametrize("text", [None, 5, b"QUJD", "", "QUJ", "QUJD\n", "\ud800", "\xe4", "QU=JD"])
def test_what_is_no_base64(text: object) -> None:
    assert parse_base64(text) is None


@pytest.mark.parametrize(
    ("address", "mime"),
    [
        ("https://x/a.PNG?b=c.pdf", "image/png"),
        ("https://x/a.pdf#b.png", "application/pdf"),
        ("https://x/a.b/c", ""),
        ("https://png", ""),
    ],
)
def test_the_type_that_an_ending_tells(address: str, mime: str) -> None:
    assert guess_mime(address) == mime
