"""Tags: EfficientNet-Lite2 trained on ImageNet, with calibrated scores and words for scenes."""
