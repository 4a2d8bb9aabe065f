"""Small files of random numbers and words where programs look for data sets and pretrained models.

python validation/programs/files.py mnist data/MNIST/raw
"""

from __future__ import annotations

import gzip
import json
import struct
import sys
from pathlib import Path

import numpy as np


def words(lines: int, seed: int = 0) -> list[str]:
    """Lines of six words from a small vocabulary."""
    random = np.random.default_rng(seed)
    known = ["".join(random.choice(list("abcdefgh"), random.integers(1, 6))) for _ in range(40)]
    return [" ".join(random.choice(known, 6)) for _ in range(lines)]


def text(path: Path) -> None:
    path.write_text("\n".join(words(2000)) + "\n")


def mnist(folder: Path, train: int = 256, test: int = 64) -> None:
    """The four files of MNIST and of Fashion-MNIST, in IDX format, compressed and not."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    for name, count in (("train", train), ("t10k", test)):
        pixels = random.integers(0, 256, (count, 28, 28)).astype("uint8")
        labels = random.integers(0, 10, count).astype("uint8")
        for kind, head, array in (
            ("images-idx3", struct.pack(">iiii", 2051, count, 28, 28), pixels),
            ("labels-idx1", struct.pack(">ii", 2049, count), labels),
        ):
            data = head + array.tobytes()
            (folder / f"{name}-{kind}-ubyte").write_bytes(data)
            (folder / f"{name}-{kind}-ubyte.gz").write_bytes(gzip.compress(data))


def mnist_whole(folder: Path) -> None:
    """MNIST with as many images as it has, for programs that count on them."""
    mnist(folder, 60_000, 10_000)


def image_folder(folder: Path, sides: int = 64, each: int = 4) -> None:
    """``train/CLASS/N.jpg`` and ``val/CLASS/N.jpg``, with four classes, and lists of them."""
    from PIL import Image

    random = np.random.default_rng(0)
    for split in ("train", "val"):
        listed = ""
        for number, label in enumerate("abcd"):
            (folder / split / label).mkdir(parents=True, exist_ok=True)
            for i in range(each):
                pixels = random.integers(0, 256, (sides, sides, 3)).astype("uint8")
                Image.fromarray(pixels).save(folder / split / label / f"{i}.jpg")
                listed += f"{split}/{label}/{i}.jpg {number}\n"
        (folder / f"{split}.txt").write_text(listed)


def mrpc(folder: Path) -> None:
    """GLUE's MRPC, pairs of sentences and whether they say the same, as a data set of files."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed, (split, count) in enumerate((("train", 64), ("validation", 32), ("test", 16))):
        first, second = words(count, seed), words(count, seed + 7)
        lines = [
            json.dumps({"sentence1": a, "sentence2": b, "label": i % 2, "idx": i})
            for i, (a, b) in enumerate(zip(first, second, strict=True))
        ]
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    listed = "".join(
        f"  - split: {split}\n    path: {split}.jsonl\n"
        for split in ("train", "validation", "test")
    )
    (folder / "README.md").write_text(
        "---\nconfigs:\n- config_name: mrpc\n  data_files:\n"
        + listed
        + "dataset_info:\n- config_name: mrpc\n  features:\n  - name: sentence1\n    dtype: string\n"
        "  - name: sentence2\n    dtype: string\n  - name: label\n    dtype:\n      class_label:\n        names:\n"
        "          '0': not_equivalent\n          '1': equivalent\n  - name: idx\n    dtype: int32\n---\n"
    )


def bert(folder: Path) -> None:
    """A BERT of two small layers with random weights, and a tokenizer of characters."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *"abcdefgh",
        *(f"##{c}" for c in "abcdefgh"),
    ]
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    BertTokenizerFast(vocab_file=str(folder / "vocab.txt"), do_lower_case=False).save_pretrained(
        folder
    )
    torch.manual_seed(0)
    small = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
    }
    BertForSequenceClassification(BertConfig(vocab_size=len(vocabulary), **small)).save_pretrained(
        folder
    )


def encoder(folder: Path) -> None:
    """The same BERT without what classifies."""
    from transformers import BertModel

    bert(folder)
    BertModel.from_pretrained(folder).save_pretrained(folder)


def llama(folder: Path) -> None:
    """A Llama of two small layers with random weights, and a tokenizer of characters."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    vocabulary = {
        word: i
        for i, word in enumerate(["<pad>", "<s>", "</s>", "<unk>", *map(chr, range(32, 127)), "\n"])
    }
    characters = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    characters.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    PreTrainedTokenizerFast(tokenizer_object=characters, **special).save_pretrained(folder)
    torch.manual_seed(0)
    small = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
    }
    small |= {
        "max_position_embeddings": 256,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }
    LlamaForCausalLM(LlamaConfig(vocab_size=len(vocabulary), **small)).save_pretrained(folder)


def texts(path: Path) -> None:
    """A data set of 64 lines of text: a folder, or one file."""
    if not path.suffix:
        path.mkdir(parents=True, exist_ok=True)
        path /= "train.jsonl"
    path.write_text("".join(json.dumps({"text": line}) + "\n" for line in words(64)))


def instructions(folder: Path) -> None:
    """A data set of 64 instructions and what answers them, as Alpaca has them."""
    folder.mkdir(parents=True, exist_ok=True)
    pairs = zip(words(64), words(64, 1), strict=True)
    lines = [
        json.dumps({"instruction": first, "input": "", "output": second}) for first, second in pairs
    ]
    (folder / "train.jsonl").write_text("\n".join(lines) + "\n")


def preferences(folder: Path) -> None:
    """A data set of 64 prompts, each with a better and a worse answer."""
    folder.mkdir(parents=True, exist_ok=True)
    triples = zip(words(64), words(64, 1), words(64, 2), strict=True)
    lines = [
        json.dumps({"prompt": prompt, "chosen": good, "rejected": bad})
        for prompt, good, bad in triples
    ]
    (folder / "train.jsonl").write_text("\n".join(lines) + "\n")


def glue_metric(home: Path) -> None:
    """The accuracy, as ``evaluate.load("glue", …)`` finds it in the folder of Hugging Face's modules."""
    folder = (
        home / "modules" / "evaluate_modules" / "metrics" / "evaluate-metric--glue" / ("0" * 64)
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "glue.py").write_text(
        "import datasets, evaluate\n"
        "class Glue(evaluate.Metric):\n"
        "    def _info(self):\n"
        "        number = datasets.Value('int64')\n"
        "        features = datasets.Features({'predictions': number, 'references': number})\n"
        "        return evaluate.MetricInfo(description='', citation='', features=features)\n"
        "    def _compute(self, predictions, references):\n"
        "        return {'accuracy': sum(a == b for a, b in zip(predictions, references)) / len(references)}\n"
    )


def cifar10(folder: Path, each: int = 32) -> None:
    """CIFAR-10's six files, for readers that do not check their sums."""
    import pickle

    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        batch = {
            "data": random.integers(0, 256, (each, 3072)).astype("uint8"),
            "labels": [i % 10 for i in range(each)],
        }
        (folder / name).write_bytes(pickle.dumps(batch))
    names = {"label_names": [f"class {i}" for i in range(10)]}
    (folder / "batches.meta").write_bytes(pickle.dumps(names))


def planetoid(folder: Path, nodes: int = 1000, classes: int = 7) -> None:
    """The eight files of Cora in a folder: a random graph with bags of words."""
    import pickle

    from scipy.sparse import csr_matrix

    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    bags = csr_matrix((random.random((nodes, 64)) < 0.1).astype("float32"))
    labels = np.eye(classes, dtype="int32")[random.integers(0, classes, nodes)]
    known, tested = (
        nodes // 8,
        range(nodes * 3 // 4, nodes),
    )  # the 500 after the known ones are to validate with
    graph = {i: random.integers(0, nodes, 3).tolist() for i in range(nodes)}
    parts = {"x": bags[:known], "tx": bags[tested], "allx": bags[: tested[0]], "graph": graph}
    parts |= {"y": labels[:known], "ty": labels[tested], "ally": labels[: tested[0]]}
    for name, part in parts.items():
        (folder / f"ind.cora.{name}").write_bytes(pickle.dumps(part))
    (folder / "ind.cora.test.index").write_text("\n".join(map(str, tested)) + "\n")


def unet(path: Path) -> None:
    """The configuration of diffusers' smallest ``UNet2DModel``."""
    small = {
        "in_channels": 3,
        "out_channels": 3,
        "layers_per_block": 1,
        "block_out_channels": [8, 16],
    }
    small |= {"norm_num_groups": 4, "attention_head_dim": 4, "sample_size": 16}
    blocks = {
        "down_block_types": ["DownBlock2D", "AttnDownBlock2D"],
        "up_block_types": ["AttnUpBlock2D", "UpBlock2D"],
    }
    path.write_text(json.dumps({"_class_name": "UNet2DModel", **small, **blocks}))


def stsb(folder: Path) -> None:
    """STS benchmark: pairs of sentences and how similar they are."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed, split in enumerate(("train", "validation", "test")):
        scores = np.random.default_rng(seed).random(32).round(3).tolist()
        rows = zip(words(32, seed), words(32, seed + 7), scores, strict=True)
        lines = [
            json.dumps({"sentence1": first, "sentence2": second, "score": score})
            for first, second, score in rows
        ]
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")


def coco(folder: Path) -> None:
    """Images with a box in each, as YOLO's trainers read them, and the file that describes them."""
    image_folder(folder / "images", 64, 2)
    for image in list(folder.glob("images/*/*/*.jpg")):
        image.rename(
            image.parent.with_name(f"{image.parent.parent.name}-{image.parent.name}{image.name}")
        )
    for split in ("train", "val"):
        labels = folder / "labels" / split
        labels.mkdir(parents=True, exist_ok=True)
        for place in (folder / "images" / split).glob("*/"):
            place.rmdir()
        for image in (folder / "images" / split).glob("*.jpg"):
            (labels / f"{image.stem}.txt").write_text("0 0.5 0.5 0.4 0.4\n")
    (folder / "boxes.yaml").write_text(
        "path: boxes\ntrain: images/train\nval: images/val\nnames: [box]\n"
    )


if __name__ == "__main__":
    for place in map(Path, sys.argv[2:]):
        place.parent.mkdir(parents=True, exist_ok=True)
        globals()[sys.argv[1]](place)
