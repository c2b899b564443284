"""Back ends for the operator's own ONNX models, configured without code: classifier, detector, embedding."""
