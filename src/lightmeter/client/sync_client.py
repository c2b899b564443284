"""The client of a service for synchronous code."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self, TypeVar, Unpack

from pydantic import SecretStr

from lightmeter.background_loop import BackgroundLoop
from lightmeter.client import client as async_client
from lightmeter.client.transport import Timeouts
from lightmeter.errors import UsageError
from lightmeter.wire.response import Answer, BackendOffer

T = TypeVar("T")


class Client:
    """Client of one service with one API key: `lightmeter.Client`. No journal, no budget. Use it in a `with` block.

    Several threads may call its methods at the same time.

    Args:
        base_url: Address of the service.
        api_key: API key of the account; with None, requests are sent without a key.
        timeouts: Time limits of each HTTP exchange; the defaults of `Timeouts` if None.
        connections: Maximum number of open connections; further requests wait for a free one, as long as it takes.
        proxy: Address of an HTTP proxy, or `PROXY_FROM_ENVIRONMENT` for the proxy that environment variables name;
            None means no proxy.

    Raises:
        SettingsError: the base URL, the key, the number of connections or the proxy is invalid.

    Example:
        >>> with lm.Client("http://127.0.0.1:8080", key) as client:  # doctest: +SKIP
        ...     answer = client.analyze(urls=["https://example.org/cat.jpg"], backends=["imagenet"])
    """

    def __init__(
        self,
        base_url: str,
        api_key: SecretStr | str | None = None,
        *,
        timeouts: Timeouts | None = None,
        connections: int = 64,
        proxy: str | None = None,
    ) -> None:
        self._client = async_client.Client(base_url, api_key, timeouts=timeouts, connections=connections, proxy=proxy)
        self._stack = ExitStack()
        self._loop: BackgroundLoop | None = None

    def __repr__(self) -> str:
        return repr(self._client)

    def __enter__(self) -> Self:
        self._loop = loop = BackgroundLoop("lightmeter-client")
        self._stack.callback(loop.close)
        loop.run(self._client.__aenter__())
        self._stack.callback(lambda: loop.run(self._client.__aexit__()))
        return self

    def __exit__(self, *_: object) -> None:
        self._loop = None
        self._stack.close()

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            coroutine.close()
            raise UsageError("The client is not open.", hint="Use it in a block: with lm.Client(…) as client.")
        return self._loop.run(coroutine)

    @property
    def base_url(self) -> str:
        """Address of the service, without a trailing slash."""
        return self._client.base_url

    def credits(self) -> int:
        """Return the balance of the account in credits, as `lightmeter.aio.Client.credits` does. The query is free."""
        return self._run(self._client.credits())

    def backends(self) -> tuple[BackendOffer, ...] | None:
        """Return the back ends that the service offers to this account, with prices. The query is free.

        Return None if the service lacks the endpoint, names no back ends, or gives no valid answer.
        """
        return self._run(self._client.backends())

    def analyze(
        self,
        *,
        urls: str | Iterable[str] = (),
        files: bytes | str | Path | Iterable[bytes | str | Path] = (),
        features: str | Iterable[str] = (),
        backends: str | Iterable[str] = (),
        timeout_s: float = 600.0,
        **options: Unpack[async_client.AnalyzeArguments],
    ) -> Answer:
        """Analyze images and videos, and return the results. The service charges credits; no budget limits them.

        `lightmeter.aio.Client.analyze` describes the errors.

        Args:
            urls: URLs of images and videos. Here and below, a single value may be given without a list.
            files: Contents as bytes, or paths of local files, 20 MB each at most.
            features: Features to analyze; if empty, all but `embeddings`.
            backends: Back ends (the models of the service) to use. If empty, the defaults of the account are used; at
                the hosted service, these cost about ten credits per image.
            timeout_s: Seconds to wait for the results of a request that is not answered at once; 0 or more.
            **options: The optional parameters that `AnalyzeArguments` describes.
        """
        call = self._client.analyze(
            urls=urls, files=files, features=features, backends=backends, timeout_s=timeout_s, **options
        )
        return self._run(call)
