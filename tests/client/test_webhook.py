"""A webhook is posted to at the address that the user has configured."""

from __future__ import annotations

import asyncio

import pytest
from pydantic import SecretStr

from lightmeter.client.webhook import post_to_webhook


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ("/hook?sp=%2Ftriggers%2Frun&sig=q%2B%2F%3D&to=a%40b", "/hook?sp=%2Ftriggers%2Frun&sig=q%2B%2F%3D&to=a%40b"),
        ("/é", "/%C3%A9"),
    ],
)
async def test_the_address_is_requested_as_written(written, sent):
    """A signed address keeps its escapes; letters that are not ASCII are encoded."""
    targets = []

    async def answer(reader, writer):
        targets.append((await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode())
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{written}"
    delivery = await post_to_webhook(SecretStr(url), b"{}", allow_private=True)
    server.close()
    assert (delivery.problem, targets) == (None, [sent])
