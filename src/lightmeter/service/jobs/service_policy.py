"""`ServicePolicy`: the rules by which the service accepts and prices requests."""

from __future__ import annotations

from dataclasses import dataclass

from lightmeter.service.backends.availability import BackendAvailability
from lightmeter.service.store.credits import Tariff


@dataclass(frozen=True, slots=True)
class ServicePolicy:
    """Rules by which the service accepts and prices requests, and keeps their results.

    Attributes:
        tariff: Prices.
        availability: Available back ends, and the reasons why other back ends are not available.
        allow_private: Whether URLs may point to private hosts.
        ports: Allowed ports of public hosts.
        result_lifetime_s: Seconds for which a result can be read after its request has ended.
        max_assets: Maximum number of URLs and files of a request together.
    """

    tariff: Tariff
    availability: BackendAvailability
    allow_private: bool
    ports: frozenset[int]
    result_lifetime_s: float
    max_assets: int
