"""Base URLs of one service are equal however they are spelled; those of other services are not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.client.base_url import canonical_base_url, equivalent_base_urls, normalize_base_url
from lightmeter.client.shared_limit import join_shared_limit
from lightmeter.errors import SettingsError
from lightmeter.manifest.canonical_url import canonical_url

ONE = [
    ["http://localhost:8080", "HTTP://LOCALHOST:8080/", "http://127.0.0.1:8080", "http://[::1]:8080//"],
    ["http://localhost.", "http://localhost:80", "http://[0:0:0:0:0:0:0:1]/", " http://127.0.0.1 "],
    ["https://api.example", "https://API.Example:443/", "https://api.example./", "https://api.example/x/.."],
    ["https://api.example/v1", "https://api.example/a/../v1/", "https://api.example/%761"],
]


@pytest.mark.parametrize("spellings", ONE)
def test_all_spellings_of_an_address_are_one(spellings):
    """Letter case, slashes, a default port, dots, escapes and the names of this machine make no difference."""
    assert len({canonical_base_url(one) for one in spellings}) == 1


def test_other_services_are_others():
    """Another scheme, host, port or path is another service."""
    addresses = [group[0] for group in ONE]
    addresses += ["http://api.example", "https://api.example:8443", "http://127.0.0.2:8080", "http://localhost:8081"]
    assert len({canonical_base_url(one) for one in addresses}) == len(addresses)


@given(
    st.sampled_from(["http", "https", "HTTP"]),
    st.from_regex(r"[a-zA-Z][a-zA-Z0-9]{0,8}(\.[a-z]{2,5})?|127\.0\.0\.1|localhost|\[::1\]", fullmatch=True),
    st.one_of(st.none(), st.integers(1, 65535)),
    st.sampled_from(["", "/", "/v1", "/v1/", "/a/../v2"]),
)
def test_every_spelling_that_is_tried_is_the_same_address(scheme, host, port, path):
    """A canonical URL is its own canonical form, and all spellings of older versions have the same one."""
    given_ = f"{scheme}://{host}{'' if port is None else f':{port}'}{path}"
    name = canonical_base_url(given_)
    assert canonical_base_url(name) == name
    assert {canonical_base_url(one) for one in equivalent_base_urls(given_)} == {name}
    assert {given_.rstrip("/"), normalize_base_url(given_)} <= set(equivalent_base_urls(given_))


@pytest.mark.parametrize(
    "address", ["https://api.example:443/v1/", "http://Service.example:8080", "https://xn--bcher-kva.de"]
)
def test_canonical_urls_never_change(address):
    """The canonical form of a remote service never changes, because cached answers are stored under it."""
    assert canonical_base_url(address) == canonical_url(address).rstrip("/")


def test_invalid_base_urls_raise():
    """An invalid base URL raises `SettingsError`."""
    for wrong in ("ftp://x", "http://", "http://user:secret@x", "http://x?a=b", "http://a..b"):
        with pytest.raises(SettingsError):
            canonical_base_url(wrong)


def test_processes_with_two_spellings_share_a_pace(tmp_path):
    """Processes that spell the base URL differently share one limit."""
    with (
        join_shared_limit(tmp_path, "http://localhost:80/", "key") as one,
        join_shared_limit(tmp_path, "http://127.0.0.1", "key") as two,
    ):
        one.exchange_states({"rate": 3.0})
        assert two.exchange_states({}) == [{"rate": 3.0}]
    assert len(list((tmp_path / "pace").iterdir())) == 1
