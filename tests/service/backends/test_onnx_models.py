"""ONNX files of the operator's own as back ends: their answers follow from the pixels, and errors are told at load."""

from __future__ import annotations

import json

import numpy as np
import pytest
from onnx import TensorProto, helper

from lightmeter.errors import BackendError, SettingsError
from lightmeter.media.image_transforms import transform_array
from lightmeter.service.backends.base import Backend, traits_of

COLOURS = ["red", "green", "blue"]
FORMATS = ["yolov5", "yolov8", "yolov10", "ssd", "nanodet"]


@pytest.fixture
def orange():
    """A picture of one colour."""
    picture = np.zeros((40, 60, 3), np.uint8)
    picture[:] = (204, 102, 0)
    return picture


@pytest.fixture
def one_red_cell():
    """A grey picture, twice as wide as high, with a red square: cell (2, 1) of the model's 4 x 4 once it is fitted."""
    picture = np.full((32, 64, 3), 114, np.uint8)
    picture[0:16, 32:48] = (255, 0, 0)
    return picture


def test_a_classifier_answers_tags_by_score(tmp_path, graphs, onnx_backend, found, orange):
    """A classifier returns each label with its score, best first, without those below the threshold."""
    backend = onnx_backend(graphs.mean_colours(tmp_path / "m.onnx"), kind="onnx-classifier", labels=COLOURS)
    assert isinstance(backend, Backend)
    assert (backend.name, backend.features) == ("own", {"tags"})
    tags = found(backend, orange)["tags"]
    assert {name: [(tag["score"], tag["source"]) for tag in tag] for name, tag in tags.items()} == {
        "red": [(0.8, "own")],
        "green": [(0.4, "own")],
    }
    assert list(tags) == ["red", "green"]


@pytest.mark.parametrize("resize", ["crop", "stretch", "letterbox"])
def test_layout_and_colour_order_are_honoured(tmp_path, graphs, onnx_backend, found, orange, resize):
    """The layout is read from the input's shape; with bgr the first class gets the blue channel."""
    table = {"kind": "onnx-classifier", "labels": COLOURS, "resize": resize, "fill": 0}
    for layout in ("nchw", "nhwc"):
        model = graphs.mean_colours(tmp_path / "m.onnx", layout=layout)
        plain, swapped = (
            found(onnx_backend(model, **table, channels=order), orange)["tags"] for order in ("rgb", "bgr")
        )
        assert plain["red"][0]["score"] == swapped["blue"][0]["score"] == pytest.approx(0.8, abs=0.3)
        assert "blue" not in plain


def test_scale_mean_and_std_are_applied_in_that_order(tmp_path, graphs, onnx_backend, found, orange):
    """A pixel value p becomes (p * scale - mean) / std, for each channel."""
    model = graphs.mean_colours(tmp_path / "m.onnx")
    table = {"kind": "onnx-classifier", "labels": COLOURS, "activation": "none"}
    tags = found(onnx_backend(model, **table, scale=1.0, mean=[200, 0, 0], std=[8, 200, 1]), orange)["tags"]
    assert {name: tag[0]["score"] for name, tag in tags.items()} == {"red": 0.5, "green": 0.51}


@pytest.mark.parametrize(
    "case",
    [(1, None, 0.8), (4, None, 0.8047), (4, "sigmoid", 0.9608), (0.5, "softmax", 0.4018), (4, "none", 1.0)],
)
def test_scores_are_probabilities(tmp_path, graphs, onnx_backend, found, orange, case):
    """Outputs from 0 to 1 are scores as they are; others go through softmax unless the settings name a function."""
    factor, activation, red = case
    model = graphs.mean_colours(tmp_path / "m.onnx", factor=factor)
    more = {} if activation is None else {"activation": activation}
    backend = onnx_backend(model, kind="onnx-classifier", labels=COLOURS, **more)
    assert found(backend, orange)["tags"]["red"][0]["score"] == pytest.approx(red, abs=1e-4)


def test_the_decision_threshold_becomes_the_default_tag_score(tmp_path, graphs, onnx_backend, found, orange):
    """Scores of at least the decision threshold pass the default `tag_score`, and the order of scores stays."""
    model = graphs.mean_colours(tmp_path / "m.onnx")
    backend = onnx_backend(model, kind="onnx-classifier", labels=COLOURS, decision_threshold=0.4)
    scores = [tag[0]["score"] for tag in found(backend, orange)["tags"].values()]
    assert scores == [pytest.approx(0.9818, abs=1e-4), 0.9]


def test_top_threshold_and_equal_labels(tmp_path, graphs, onnx_backend, found, orange):
    """At most `top` tags, none below the threshold, and classes of one name are one tag with the higher score."""
    model = graphs.mean_colours(tmp_path / "m.onnx")
    make = {"kind": "onnx-classifier", "labels": COLOURS}
    assert list(found(onnx_backend(model, **make, top=1), orange)["tags"]) == ["red"]
    assert list(found(onnx_backend(model, **make, threshold=0.5), orange)["tags"]) == ["red"]
    (tags,) = found(onnx_backend(model, **{**make, "labels": ["warm", "warm", "cold"]}), orange)["tags"]["warm"]
    assert tags["score"] == 0.8


def test_a_classifier_can_moderate(tmp_path, graphs, onnx_backend, found, orange):
    """With feature nsfw every label is an entry of the numeric form, however low."""
    model = graphs.mean_colours(tmp_path / "m.onnx")
    backend = onnx_backend(model, kind="onnx-classifier", labels=COLOURS, feature="nsfw")
    assert backend.features == {"nsfw"}
    assert [(entry["label"], entry["score"]) for entry in found(backend, orange)["nsfw"]] == [
        ("red", 0.8),
        ("green", 0.4),
        ("blue", 0.0),
    ]


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT16, TensorProto.UINT8])
def test_other_numbers_than_single_floats(tmp_path, graphs, onnx_backend, found, orange, dtype):
    """Half precision is scaled like single, integers are 0 to 255, and the settings may give the input size."""
    nodes = [
        helper.make_node("Cast", ["x"], ["float"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["float"], ["mean"], axes=[1, 2], keepdims=0),
        helper.make_node("Div", ["mean", "most"], ["scores"]),
    ]
    most = {"most": np.array(255 if dtype == TensorProto.UINT8 else 1, np.float32)}
    shape = ("n", "h", "w", 3)
    model = graphs.write_model(tmp_path / "m.onnx", nodes, ["scores"], constants=most, shape=shape, dtype=dtype)
    backend = onnx_backend(model, kind="onnx-classifier", labels=COLOURS, size=[24, 16])
    assert found(backend, orange)["tags"]["red"][0]["score"] == pytest.approx(0.8, abs=1e-3)


@pytest.mark.parametrize("form", FORMATS)
def test_detector_formats_are_detected(tmp_path, graphs, onnx_backend, found, one_red_cell, form):
    """Each output format gives the same box around the same thing, with the model's score."""
    model = graphs.red_cells(tmp_path / "m.onnx", form)
    # Two classes leave [1, n, 6] open: two labels of yolov8, or the rows of yolov10.
    more = {"format": form} if form == "yolov10" else {}
    backend = onnx_backend(model, kind="onnx-detector", labels=["red", "blue"], **more)
    ((name, (tag,)),) = found(backend, one_red_cell)["tags"].items()
    assert (name, tag["score"]) == ("red", 0.5 if form == "yolov5" else 1.0)
    assert [{key: round(value, 2) for key, value in box.items()} for box in tag["boxes"]] == [
        {"left": 0.5, "top": 0.0, "width": 0.25, "height": 0.5, "score": tag["score"]}
    ]


def test_shapes_that_fit_two_formats_are_refused(tmp_path, graphs, onnx_backend):
    """Six values a box are two classes of yolov8 or a row of yolov10: the operator decides."""
    model = graphs.red_cells(tmp_path / "m.onnx", "yolov10")
    with pytest.raises(SettingsError, match="could be yolov8 or yolov10") as refused:
        onnx_backend(model, kind="onnx-detector", labels=["red", "blue"])
    assert "set format" in refused.value.hint


@pytest.mark.parametrize("case", [("letterbox", 64, 64), ("letterbox", 96, 64), ("stretch", 64, 64)], ids=str)
def test_boxes_are_shares_of_the_picture(tmp_path, graphs, onnx_backend, found, case):
    """Boxes are converted back from any resizing and padding."""
    picture = np.full((100, 200, 3), 114, np.uint8)
    picture[:, :100] = (255, 0, 0)
    resize, width, height = case
    model = graphs.red_cells(tmp_path / "m.onnx", "yolov8", width=width, height=height, cell=8)
    backend = onnx_backend(model, kind="onnx-detector", labels=["red", "blue"], resize=resize, threshold=0.4)
    boxes = found(backend, picture)["tags"]["red"][0]["boxes"]
    assert min(box["left"] for box in boxes) == min(box["top"] for box in boxes) == 0
    assert max(box["left"] + box["width"] for box in boxes) == pytest.approx(0.5, abs=0.07)
    assert max(box["top"] + box["height"] for box in boxes) == pytest.approx(1, abs=0.07)


def test_one_thing_is_one_box(tmp_path, graphs, onnx_backend, found, one_red_cell):
    """Overlapping boxes of one class are reduced to the best; other classes are not affected."""
    rows = np.array([[[40, 24, 16, 16, 0.9, 0.3], [41, 24, 16, 16, 0.8, 0.6], [8, 24, 16, 16, 0.5, 0]]], np.float32)
    model = graphs.write_model(
        tmp_path / "m.onnx",
        [
            helper.make_node("ReduceMax", ["x"], ["any"], axes=[1, 2, 3], keepdims=0),
            helper.make_node("Mul", ["any", "none"], ["zero"]),
            helper.make_node("Add", ["rows", "zero"], ["out"]),
        ],
        ["out"],
        constants={"rows": rows, "none": np.array(0, np.float32)},
        shape=(1, 3, 64, 64),
    )
    backend = onnx_backend(model, kind="onnx-detector", labels=["cat", "dog"], format="yolov8")
    tags = found(backend, one_red_cell)["tags"]
    assert {name: [box["score"] for box in tag[0]["boxes"]] for name, tag in tags.items()} == {
        "cat": [0.9, 0.5],
        "dog": [0.6],
    }


def test_an_embedding_is_a_unit_vector(tmp_path, graphs, onnx_backend, found, one_red_cell):
    """The embedding is the named output as a unit vector, with the model's name and the first digits of its digest."""
    model = graphs.pooled_pixels(tmp_path / "pooled.onnx")
    backend = onnx_backend(model, kind="onnx-embedding", output="vector")
    (entry,) = found(backend, one_red_cell)["embeddings"]
    assert (len(entry["vector"]), entry["source"]) == (12, "own")
    assert np.linalg.norm(entry["vector"]) == pytest.approx(1, abs=1e-6)
    assert entry["model"] == backend.model
    assert backend.model.startswith("pooled@")
    (other,) = found(
        onnx_backend(graphs.pooled_pixels(tmp_path / "pooled.onnx"), kind="onnx-embedding", output="vector"),
        one_red_cell,
    )["embeddings"]
    assert other == entry


def test_a_vector_without_length_is_an_error(tmp_path, graphs, onnx_backend, options):
    """A zero vector raises an error."""
    backend = onnx_backend(graphs.pooled_pixels(tmp_path / "m.onnx"), kind="onnx-embedding", output="vector")
    with pytest.raises(BackendError, match="cannot be scaled"):
        backend.analyze([np.zeros((8, 8, 3), np.uint8)], backend.features, options)


@pytest.mark.parametrize("form", ["text", "json list", "json object", "metadata"])
def test_labels_come_from_files_or_the_model(tmp_path, graphs, onnx_backend, found, orange, form):
    """Labels are read from a text file, from JSON, or from the metadata that Ultralytics writes."""
    model = graphs.mean_colours(tmp_path / "m.onnx")
    table = {"labels": "labels.json"}
    if form == "text":
        (tmp_path / "labels.txt").write_text("red\ngreen\r\nblue\n\n", encoding="utf-8")
        table = {"labels": "labels.txt"}
    elif form == "json list":
        (tmp_path / "labels.json").write_text(json.dumps(COLOURS))
    elif form == "json object":
        (tmp_path / "labels.json").write_text(json.dumps({"0": "red"}))
    else:
        table = {}
        graphs.add_metadata(model, names="{0: 'red', 1: 'green', 2: 'blue'}")
    tags = found(onnx_backend(model, kind="onnx-classifier", **table), orange)["tags"]
    assert list(tags) == (["red"] if form == "json object" else ["red", "green"])


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"model": "none.onnx"}, "backends.own: model: there is no file"),
        ({"labels": "none.txt"}, "backends.own: labels: there is no file"),
        ({"labels": ["one", "two"]}, "labels: 2 names, the last for index 1, and the model has 3 outputs"),
        ({"labels": ["a", "b", "c", "d"]}, "labels: 4 names, the last for index 3, and the model has 3 outputs"),
        ({"labels": "bad.json"}, "holds no labels"),
        ({"labels": ["a", " ", "c"]}, "index 1 is below 0, or has an empty name"),
        ({"model": "bad.json"}, "is not an ONNX file"),
        ({"size": [64, 64]}, r"size: \[64, 64\] does not fit input 'x' of shape \[1, 3, 32, 32\]"),
        ({"output": "logits"}, "output: there is no 'logits'"),
        ({"layout": "nhwc"}, "has 32 color channels"),
        ({"kind": "onnx-detector"}, "are of no supported format"),
        ({"kind": "onnx-detector", "format": "ssd"}, "are not of ssd with 3 labels"),
        ({"kind": "onnx-oracle"}, "backends.own.kind"),
        ({"labls": []}, "backends.own.labls"),
        ({"price": 0.0001}, "backends.own.price"),
        ({"iou": 0.5}, "iou: not a setting of onnx-classifier"),
        ({"feature": "nsfw", "top": 3}, "top: not a setting of onnx-classifier with feature nsfw"),
    ],
    ids=str,
)
def test_what_is_wrong_is_reported_at_load(tmp_path, graphs, onnx_backend, table, sentence):
    """An invalid setting raises an error that names the back end and the setting."""
    model = graphs.mean_colours(tmp_path / "m.onnx")
    (tmp_path / "bad.json").write_text("Hello")
    with pytest.raises(SettingsError, match=sentence):
        onnx_backend(model, **{"kind": "onnx-classifier", "labels": COLOURS, **table})


@pytest.mark.parametrize(
    ("shape", "sentence"),
    [
        ((1, 3), "is not for pictures"),
        ((1, 1, 32, 32), "has 1 color channels"),
        ((4, 3, 32, 32), "takes 4 pictures at a time"),
        ((1, 3, "h", "w"), "does not say its size"),
    ],
    ids=str,
)
def test_an_input_that_is_no_picture_is_refused(tmp_path, graphs, onnx_backend, shape, sentence):
    """One picture with three colours and a known size."""
    axes = list(range(2, len(shape)))
    nodes = [helper.make_node("ReduceMean", ["x"], ["mean"], axes=axes or [1], keepdims=0)]
    model = graphs.write_model(tmp_path / "m.onnx", nodes, ["mean"], shape=shape)
    with pytest.raises(SettingsError, match=sentence):
        onnx_backend(model, kind="onnx-classifier", labels=COLOURS)


@pytest.mark.parametrize("place", ["../outside.bin", "{folder}/../outside.bin", "link.bin", "missing.bin"])
def test_weights_elsewhere_are_refused(tmp_path, graphs, onnx_backend, place):
    """A model cannot make the service read a file outside of its own folder, by a path or a link."""
    folder = tmp_path / "models"
    folder.mkdir()
    (tmp_path / "outside.bin").write_bytes(bytes(12))
    (folder / "link.bin").symlink_to(tmp_path / "outside.bin")
    graphs.external_weights(folder / "m.onnx", place.format(folder=folder))
    with pytest.raises(SettingsError, match=r"outside of its folder|no such file"):
        onnx_backend(folder / "m.onnx", kind="onnx-classifier", labels=COLOURS, model="models/m.onnx")


def test_weights_beside_the_model_are_read(tmp_path, graphs, onnx_backend, found, orange):
    """External data in the model's folder are loaded, and are part of its digest."""
    digests = []
    for weight in (1, 0.5):
        (tmp_path / "w.bin").write_bytes(np.full(3, weight, np.float32).tobytes())
        backend = onnx_backend(
            graphs.external_weights(tmp_path / "m.onnx", "w.bin"), kind="onnx-classifier", labels=COLOURS
        )
        assert found(backend, orange)["tags"]["red"][0]["score"] == pytest.approx(0.8 * weight, abs=1e-4)
        digests.append(backend.model)
    assert len(set(digests)) == 2


@pytest.mark.parametrize("kind", ["onnx-classifier", "onnx-detector", "onnx-embedding"])
def test_odd_pictures_and_views_are_answered(tmp_path, graphs, onnx_backend, options, odd_pictures, kind):
    """Any picture gives the same entries after the declared transform, and only for the requested feature."""
    if kind == "onnx-detector":
        backend = onnx_backend(graphs.red_cells(tmp_path / "m.onnx", "nanodet"), kind=kind, labels=["red", "blue"])
    elif kind == "onnx-embedding":
        backend = onnx_backend(graphs.pooled_pixels(tmp_path / "m.onnx"), kind=kind, output="vector", mean=-1)
    else:
        backend = onnx_backend(graphs.mean_colours(tmp_path / "m.onnx"), kind=kind, labels=COLOURS)
    pictures = list(odd_pictures.values())
    answers = backend.analyze(pictures, backend.features, options)
    transformed = [transform_array(picture, traits_of(backend).transform) for picture in pictures]
    assert answers == backend.analyze(transformed, backend.features, options)
    (nothing,) = backend.analyze(pictures[:1], frozenset({"colors"}), options)
    assert not any(nothing.model_dump().values())
