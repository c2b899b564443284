"""Analysis of images and videos: limit of pending work, queues for the back ends, cache and merging of results."""
