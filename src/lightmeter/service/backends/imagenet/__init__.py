"""Back end `imagenet`: tags by EfficientNet-Lite2, with calibrated scores and scene tags."""
