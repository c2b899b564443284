"""Decides whether a plan's options can be changed without reading, checking or screening its rows again."""

from __future__ import annotations

from lightmeter.errors import UsageError
from lightmeter.options import SCREEN_OPTIONS, SCREENED_WITH, Options, options_of

_PLAN_AGAIN = "Plan the manifest again."


def check_rows_stay_valid(before: Options, after: Options, *, is_screened: bool) -> None:
    """Raise an error if the rows of a plan would have to be read, pre-checked or screened again for new options.

    "Screened" means that free local back ends (option `screen`) decided which rows are sent.

    Args:
        before: The options of the plan.
        after: The new options.
        is_screened: Whether local back ends have screened the rows.

    Raises:
        UsageError: an option differs that decides how the manifest is read, such as the column of URLs; `after` turns
            on pre-checks, but the plan was made without them; the option `skip` or `duplicates` differs; other frames
            of the videos would be sent; or an option differs that decides which rows the local back ends pass.
    """

    def differ(*names: str) -> bool:
        return any(getattr(before, name) != getattr(after, name) for name in names)

    if differ(*options_of("read")):
        raise UsageError("The rows of this plan were read with other columns or quotes.", hint=_PLAN_AGAIN)
    if differ(*SCREEN_OPTIONS, *(SCREENED_WITH if is_screened else ())):
        raise UsageError("These options change which rows a screen passes.", hint=_PLAN_AGAIN)
    if differ(*options_of("frames"), *(("capture_interval", "max_frames") if after.video == "frames" else ())):
        raise UsageError("Other frames of the videos would be sent.", hint=_PLAN_AGAIN)
    if after.precheck and not before.precheck:
        raise UsageError("This plan was made without pre-checks.", hint="Plan the manifest again, with pre-checks.")
    if set(after.skip) != set(before.skip):
        raise UsageError("The rows of this plan were skipped for other findings.", hint=_PLAN_AGAIN)
    if differ("duplicates"):
        raise UsageError("The duplicates of this plan are already found.", hint=_PLAN_AGAIN)
