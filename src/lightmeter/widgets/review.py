"""`Review`: the review of a run's NSFW ratings in a notebook."""

from __future__ import annotations

from lightmeter.ui.review.review import ReviewView
from lightmeter.widgets.view_widget import ViewWidget


class Review(ReviewView, ViewWidget, module="review"):
    """Notebook widget in which a person decides (keep, reject, unsure) about a run's items by their NSFW ratings.

    Example:
        >>> import lightmeter as lm
        >>> lm.Review("out/run")  # doctest: +SKIP
    """

    def close(self) -> None:
        """Write the table `reviews` if it lacks decisions, and close the widget."""
        self.close_view()
        super().close()
