"""Analysis of images and videos: limits of unfinished work, queues for the back ends, cache and merging of results."""
