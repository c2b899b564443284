"""The review page: a person keeps or rejects items by their NSFW ratings, and sees how often back ends agree."""
