"""Write `nsfwjs-mid.onnx` from the npm package `nsfwjs`; needs `node` and an unpacked package.

    npm pack nsfwjs@4.4.0 && tar xzf nsfwjs-4.4.0.tgz
    python nsfwjs_to_onnx.py package nsfwjs-mid.onnx

The package holds the model as a TensorFlow.js graph, with batch normalisation folded into the convolutions and each
weight as one byte (value = byte * scale + minimum). The bytes stay as they are; onnxruntime expands them at load.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

DUMP = """
const folder = process.argv[1] + "/dist/models/mobilenet_v2_mid/";
const read = (name) => { const m = require(folder + name); return m.default ?? m; };
const shards = [1, 2].map((i) => read(`group1-shard${i}of2.min.js`));
const text = (shard) => (typeof shard === "string" ? shard : Object.values(shard)[0]);
console.log(JSON.stringify({ model: read("model.min.js"), shards: shards.map(text) }));
"""
INPUT_SIDE = 224
CLASSES = 5
OPSET = 17
# TensorFlow.js → ONNX where nothing but the name differs: the pool's window is the whole of the 7 x 7 map, and Flatten
# (axis 1) drops the two sides of 1 that are left.
PLAIN = {
    "AddV2": "Add",
    "AvgPool": "GlobalAveragePool",
    "Squeeze": "Flatten",
    "Softmax": "Softmax",
    "Identity": "Identity",
}


class Graph:
    """The ONNX graph as it grows: one method for each kind of TensorFlow.js node."""

    def __init__(self, weights):
        self.weights = weights
        self.nodes, self.initializers = [], []

    def add(self, kind, inputs, output, **attributes):
        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def constant(self, name, values):
        self.initializers.append(numpy_helper.from_array(values, name))
        return name

    def weight(self, name, turn=None):
        """A weight as bytes, turned to ONNX's order of axes, and the nodes that expand it."""
        values, scale, minimum = self.weights[name]
        short = f"w{len(self.initializers)}"
        turned = np.ascontiguousarray(values if turn is None else turn(values))
        self.constant(short, turned)
        self.add("Cast", [short], f"{short}_f", to=TensorProto.FLOAT)
        self.add("Mul", [f"{short}_f", self.constant(f"{short}_s", np.float32(scale))], f"{short}_m")
        return self.add("Add", [f"{short}_m", self.constant(f"{short}_o", np.float32(minimum))], f"{short}_w")

    def convolution(self, node, out):
        source, kernel, bias = node["input"]
        stride = int(node["attr"]["strides"]["list"]["i"][1])
        depthwise = node["op"].startswith("FusedDepthwise")
        shape = self.weights[kernel][0].shape
        # Kernels: height, width, in, out; depthwise: height, width, channel, 1. ONNX: out, in per group, height, width.
        turned = self.weight(kernel, lambda k: k.transpose((2, 3, 0, 1) if depthwise else (3, 2, 0, 1)))
        convolved = self.add(
            "Conv",
            [source, turned, self.weight(bias)],
            out + "_c",
            auto_pad="SAME_UPPER",
            strides=[stride, stride],
            group=shape[2] if depthwise else 1,
        )
        fused = [base64.b64decode(word).decode() for word in node["attr"]["fused_ops"]["list"]["s"]]
        if fused == ["BiasAdd"]:
            return self.add("Identity", [convolved], out)
        if fused != ["BiasAdd", "Relu6"]:
            raise ValueError(f"{node['name']}: unknown fused operations {fused}.")
        low, high = f"{out}_low", f"{out}_high"
        return self.add("Clip", [convolved, self.constant(low, np.float32(0)), self.constant(high, np.float32(6))], out)


def read_package(folder):
    """The graph's nodes, and each weight as its bytes, scale and minimum."""
    process = subprocess.run(["node", "-e", DUMP, str(Path(folder).resolve())], capture_output=True, check=True)
    dump = json.loads(process.stdout)
    stored, offset, weights = b"".join(base64.b64decode(shard) for shard in dump["shards"]), 0, {}
    for group in dump["model"]["weightsManifest"]:
        for weight in group["weights"]:
            count, form = int(np.prod(weight["shape"])), weight["quantization"]
            values = np.frombuffer(stored, np.uint8, count, offset).reshape(weight["shape"])
            weights[weight["name"]] = values, form["scale"], form["min"]
            offset += count
    return dump["model"]["modelTopology"]["node"], weights


def convert(nodes, weights):
    """The ONNX model: `pictures`, N x 224 x 224 x 3 bytes of sRGB, to `probabilities`, N x 5."""
    graph = Graph(weights)
    graph.add("Cast", ["pictures"], "floats", to=TensorProto.FLOAT)
    graph.add("Div", ["floats", graph.constant("most", np.float32(255))], "shares")
    graph.add("Transpose", ["shares"], "input", perm=[0, 3, 1, 2])
    for node in nodes:
        name, sources = node["name"], node.get("input", [])
        match node["op"]:
            case "Const" | "Placeholder":
                continue
            case "Mul" | "Sub":
                # A scalar is the one input that is a weight.
                ordered = [graph.weight(one) if one in weights else one for one in sources]
                graph.add(node["op"], ordered, name)
            case "_FusedConv2D" | "FusedDepthwiseConv2dNative":
                graph.convolution(node, name)
            case "_FusedMatMul":
                graph.add("Gemm", [sources[0], graph.weight(sources[1]), graph.weight(sources[2])], name)
            case kind if kind in PLAIN:
                graph.add(PLAIN[kind], sources, "probabilities" if kind == "Identity" else name)
            case unknown:
                raise ValueError(f"{name}: unknown operation {unknown}.")
    onnx_graph = helper.make_graph(
        graph.nodes,
        "nsfwjs-mobilenet_v2_mid",
        [helper.make_tensor_value_info("pictures", TensorProto.UINT8, ["N", INPUT_SIDE, INPUT_SIDE, 3])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["N", CLASSES])],
        graph.initializers,
    )
    return renamed(helper.make_model(onnx_graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8))


def renamed(model):
    """Short names for the tensors between nodes: the long ones of TensorFlow are a twentieth of the file."""
    keep, short = {"pictures", "probabilities"} | {one.name for one in model.graph.initializer}, {}
    for node in model.graph.node:
        for names in (node.input, node.output):
            for place, name in enumerate(names):
                if name and name not in keep:
                    names[place] = short.setdefault(name, f"t{len(short)}")
    onnx.checker.check_model(model, full_check=True)
    return model


if __name__ == "__main__":
    package, target = sys.argv[1:]
    Path(target).write_bytes(convert(*read_package(package)).SerializeToString())
