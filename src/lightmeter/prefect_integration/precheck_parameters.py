"""The parameters of the flow `precheck` that decide how a manifest is read and checked."""

from __future__ import annotations

from typing import Any

from lightmeter.options import CheckOptions, ScaleOutOptions


class CheckParameters(CheckOptions, ScaleOutOptions):
    """How a manifest is read and checked, and whether on this worker, Dask or Ray."""

    def to_options(self) -> dict[str, Any]:
        """Return the keyword arguments of `lightmeter.check`."""
        return self.model_dump()
