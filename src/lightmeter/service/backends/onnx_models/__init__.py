"""Back ends made from an ONNX file of the operator's own: a classifier, a detector or an embedding, without code."""
