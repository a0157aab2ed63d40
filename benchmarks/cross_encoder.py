"""Scores of replies by a cross-encoder of MiniLM's sizes (6 layers of 384), against `predict` of sentence-transformers.

Ours reads blocks of texts without padding, of the last layer the first token alone. The reference reads 32 pairs of like length
at once, all padded to the longest, and whole: sentence-transformers itself in an environment of its own
(`peer_cross_encoder.py` says how that is made), or else what it does there, by transformers alone in this process. Groups of
ten are those of the test split of "ubuntu_dialogues" where it is at hand, of contexts that fit; otherwise drawn ones. The
encoder is all-MiniLM-L6-v2 where its package is installed (`make real-models`), otherwise drawn; the head is always drawn.

    python -m benchmarks.cross_encoder --peer peer/bin/python

"ratio" is of the processor's seconds, tokens included. "identical": no logit differs by `MOST_DIFFERENCE` or more; "spread" is
their deviation. "most_ratio" is the ratio if ours did its arithmetic at the speed of one large product and nothing else.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from benchmarks.measure import CPU, BenchmarkOptions, Clock, Result, peak_flop_per_s, run
from benchmarks.ranking import SEED, groups
from parley.envs.core.errors import ConfigError
from parley.envs.corpora.pairs.turns import detokenise
from parley.policies.ranking.encoders import context_text, load_hugging_face_ranker
from parley.policies.ranking.ranker import Pair, Unread

MOST_DIFFERENCE = 1e-5
CONTEXTS, QUICK = 80, 12
BATCH = 32
"""Pairs that `predict` reads at once unless told otherwise."""
LAYERS, WIDTH, INNER, HEADS = 6, 384, 1536, 12
MARKS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


@dataclass(frozen=True, kw_only=True)
class Options(BenchmarkOptions):
    """Scores of pairs by a cross-encoder."""

    peer: str = ""
    """Interpreter of an environment with sentence-transformers."""
    data_root: Path | None = None
    """Folder that holds the corpora; the default is PARLEY_DATA, else the user cache."""


def save_model(folder: Path, pairs: Sequence[Pair]) -> str:
    """Save a cross-encoder whose score is its logit, and return what its encoder is."""
    torch.manual_seed(SEED)
    spec = find_spec("all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        tokenizer, name = word_tokenizer(pairs), "drawn"
        sizes = {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "intermediate_size": INNER}
        config = transformers.BertConfig(vocab_size=len(tokenizer), num_labels=1, initializer_range=WIDTH**-0.5, **sizes)
        model = transformers.BertForSequenceClassification(config)
    else:
        with zipfile.ZipFile(Path(spec.origin).parent / "model.zip") as archive:
            archive.extractall(folder / "encoder")
        tokenizer, name = transformers.AutoTokenizer.from_pretrained(folder / "encoder"), "all-MiniLM-L6-v2"
        model = transformers.BertForSequenceClassification.from_pretrained(folder / "encoder", num_labels=1)
    # A head of small weights would give all pairs nearly one score.
    torch.nn.init.normal_(model.classifier.weight)
    model.config.sentence_transformers = {"activation_fn": "torch.nn.modules.linear.Identity"}
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return name


def word_tokenizer(pairs: Sequence[Pair]) -> Any:
    """Return a tokenizer of the words of some pairs, each one token."""
    texts = [detokenise(words) for context, candidates in pairs for words in (*context, *candidates)]
    words = dict.fromkeys([*MARKS, *(word for text in texts for word in text.split())])
    inner = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token=MARKS[1]))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.post_processor = processors.BertProcessing((MARKS[3], 3), (MARKS[2], 2))
    marks = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token"), MARKS, strict=True))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, model_max_length=512, **marks)


class Plain:
    """The reference by transformers alone."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.model = transformers.BertForSequenceClassification.from_pretrained(folder).eval()

    @torch.inference_mode()
    def predict(self, texts: Sequence[tuple[str, str]]) -> np.ndarray:
        """Return the logits of pairs (P,), read in batches of like numbers of characters."""
        scores = np.empty(len(texts))
        order = np.argsort([-len(first) - len(second) for first, second in texts])
        for start in range(0, len(texts), BATCH):
            rows = order[start : start + BATCH]
            read = self.tokenizer([texts[row] for row in rows], padding=True, truncation=True, return_tensors="pt")
            scores[rows] = self.model(**read).logits[:, 0].numpy()
        return scores


def predict_by_peer(python: str, folder: Path) -> tuple[float, np.ndarray]:
    """Return the seconds and scores of sentence-transformers, in its environment.

    Raises:
        ConfigError: it ends with an error.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}
    script = str(Path(__file__).with_name("peer_cross_encoder.py"))
    done = subprocess.run([python, script, str(folder)], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ConfigError("the other tool failed", where="--peer", got=last, fix=f"run {script} in its environment")
    seconds, scores = json.loads(done.stdout.splitlines()[-1])
    return seconds, np.array(scores)


def operations(lengths: np.ndarray, *, whole: bool) -> float:
    """Return the operations of matrix products for texts of so many tokens.

    Args:
        lengths: tokens of each text.
        whole: whether the last layer is computed for all tokens, not for the first alone.
    """
    products, tokens = 2 * (4 * WIDTH**2 + 2 * WIDTH * INNER), lengths.sum()
    layer = products * tokens + 4 * WIDTH * (lengths**2).sum()
    # Each head meets the states of all tokens twice.
    last = layer if whole else products * len(lengths) + 4 * HEADS * WIDTH * tokens
    return float((LAYERS - 1) * layer + last)


def measure(options: Options) -> Result:
    """Compare both ways."""
    source, drawn = groups(2 * (QUICK if options.quick else CONTEXTS), options.data_root)
    with tempfile.TemporaryDirectory() as name:
        folder, clock, plain_clock = Path(name), Clock(), Clock()
        encoder = save_model(folder, drawn)
        ranker, plain = load_hugging_face_ranker(folder), Plain(folder)
        pairs = [pair for pair in drawn if ranker.unread(*pair) == Unread()][: QUICK if options.quick else CONTEXTS]
        texts = [(context_text(context), detokenise(reply)) for context, candidates in pairs for reply in candidates]
        # What was counted above is forgotten.
        ranker = load_hugging_face_ranker(folder)
        ranker.score_all(pairs[:1])
        plain.predict(texts[:2])
        with clock.running():
            ours = np.concatenate(ranker.score_all(pairs))
        if options.peer:
            (folder / "pairs.json").write_text(json.dumps(texts), encoding="utf-8")
            reference_s, theirs = predict_by_peer(options.peer, folder)
        else:
            with plain_clock.running():
                theirs = plain.predict(texts)
            reference_s = plain_clock.cpu_s
        lengths = np.array([len(ids) for ids in plain.tokenizer(texts)["input_ids"]])
    by_length = np.sort(lengths)[::-1]
    padded = np.concatenate([np.full(len(by_length[i : i + BATCH]), by_length[i]) for i in range(0, len(by_length), BATCH)])
    peak, needed = peak_flop_per_s(CPU), operations(lengths, whole=False)
    return Result(
        ratio=reference_s / clock.cpu_s,
        identical=float(np.abs(ours - theirs).max()) < MOST_DIFFERENCE,
        share_of_floor=needed / peak / clock.cpu_s,
        figures={
            "reference": "sentence-transformers" if options.peer else "plain",
            "encoder": encoder,
            "texts": source,
            "pairs": len(texts),
            "mean_tokens": float(lengths.mean()),
            "padding_share": 1 - float(lengths.sum() / padded.sum()),
            "ms_a_pair": 1e3 * clock.cpu_s / len(texts),
            "reference_ms_a_pair": 1e3 * reference_s / len(texts),
            "most_ratio": reference_s / (needed / peak),
            "peak_gflop_per_s": peak / 1e9,
            "gflop": needed / 1e9,
            "reference_gflop": operations(padded, whole=True) / 1e9,
            "difference": float(np.abs(ours - theirs).max()),
            "spread": float(ours.std()),
        },
    )


if __name__ == "__main__":
    run("cross_encoder", Options, measure)
