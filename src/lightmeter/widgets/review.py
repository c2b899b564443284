"""`Review`: the review of a run's NSFW ratings in a notebook."""

from __future__ import annotations

from lightmeter.ui.review.review import ReviewView
from lightmeter.widgets.view_widget import ViewWidget


class Review(ReviewView, ViewWidget, module="review"):
    """Notebook widget to decide (keep, reject, unsure) about the items of a run that back ends rated as NSFW.

    Example:
        >>> import lightmeter as lm
        >>> lm.Review("out/run")  # doctest: +SKIP
    """

    def close(self) -> None:
        """Close the widget, and write the decisions to the table `reviews` that it lacks."""
        self.close_view()
        super().close()
