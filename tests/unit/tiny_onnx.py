"""A cross-encoder of two operations, written byte by byte: its logit is the mean of the token ids of query and text.

There is no model of this kind in any package here, and the `onnx` library would be a large dependency for one test.
"""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

INT64, FLOAT = 7, 1


def _varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def _field(number: int, value: int | bytes | str) -> bytes:
    """Protocol Buffers: a varint, or bytes with their length."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _tensor(name: str, kind: int, axes: tuple[str, ...]) -> bytes:
    shape = b"".join(_field(1, _field(2, axis)) for axis in axes)
    return _field(1, name) + _field(2, _field(1, _field(1, kind) + _field(2, shape)))


def _node(kind: str, source: str, target: str, *attributes: bytes) -> bytes:
    return _field(1, source) + _field(2, target) + _field(4, kind) + b"".join(_field(5, a) for a in attributes)


def model() -> bytes:
    cast = _node("Cast", "input_ids", "numbers", _field(1, "to") + _field(3, FLOAT) + _field(20, 2))
    axes = _field(1, "axes") + _field(8, 1) + _field(20, 7)
    keep = _field(1, "keepdims") + _field(3, 1) + _field(20, 2)
    mean = _node("ReduceMean", "numbers", "logits", axes, keep)
    graph = _field(1, cast) + _field(1, mean) + _field(2, "tiny")
    graph += _field(11, _tensor("input_ids", INT64, ("batch", "tokens")))
    graph += _field(12, _tensor("logits", FLOAT, ("batch", "one")))
    return _field(1, 8) + _field(7, graph) + _field(8, _field(2, 13))


def folder_of(folder: Path, words: list[str]) -> Path:
    """What fastembed reads: the model, and a tokenizer that numbers these words from 1 on."""
    folder.mkdir()
    (folder / "model.onnx").write_bytes(model())
    tokenizer = Tokenizer(WordLevel({"[PAD]": 0} | {word: at for at, word in enumerate(words, 1)}, unk_token="[PAD]"))
    tokenizer.pre_tokenizer = Whitespace()  # type: ignore[assignment]
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"pad_token_id": 0}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 64, "pad_token": "[PAD]"}))
    (folder / "special_tokens_map.json").write_text(json.dumps({"pad_token": "[PAD]"}))
    return folder
