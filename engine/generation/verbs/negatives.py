"""What a generator replies to the contexts of a corpus: the negative examples of discriminators and judges.

Half of the replies are found by a decoder, half are sampled (Li et al. 2017, section 3.3). Which way a context gets, and every
draw, follows from the seed and its place in the corpus, so that a run that was killed goes on as if it had not been, and one
that asks the same of the same generator may take what another has decoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from parley.engine.core.verbs.job import Reporter
from parley.engine.generation.metrics.training import DECODED, SAMPLED
from parley.envs.core.errors import CheckpointError
from parley.envs.core.seeds import derive_seed, stream
from parley.policies.core.decoders import DecoderSettings

if TYPE_CHECKING:
    from parley.envs.corpora.pairs.compiled import PairSplit
    from parley.policies.seq2seq.model import Seq2Seq

_PART = 1_000
"""Contexts that are decoded between two savings."""


class Negatives:
    """Decodes by parts, and keeps what is decoded in a file.

    Args:
        generator: in evaluation mode.
        decoder: of the replies that are not sampled.
        seed: of the run.
        reporter: who looks on.
        origin: what replies follow from: weights, decoder, seed, contexts. It is noted in the file.
        others: a file that another run keeps, of the same origin; need not be there.

    Raises:
        CheckpointError: a model that the decoder names is not there, or damaged.
    """

    def __init__(
        self,
        generator: Seq2Seq,
        decoder: DecoderSettings,
        seed: int,
        reporter: Reporter,
        origin: Mapping[str, str | int],
        others: Path | None = None,
    ) -> None:
        from parley.policies.seq2seq.replying import ReplyDecoder

        ways = {DECODED: decoder, SAMPLED: DecoderSettings(rule="sample")}
        self._ways = {name: ReplyDecoder(generator, settings) for name, settings in ways.items()}
        self._seed, self._reporter = seed, reporter
        self._origin, self._others = dict(origin), others

    def of(self, name: str, pairs: PairSplit, path: Path) -> tuple[list[np.ndarray], np.ndarray]:
        """The generator's replies to the contexts of a split.

        Args:
            name: of the split.
            path: the file that they are kept in.
            pairs: contexts and recorded replies.

        Returns:
            Word ids without `</s>`, and how each came about, `DECODED` or `SAMPLED` (P,).

        Raises:
            CheckpointError: a file is damaged, or holds replies of another origin.
        """
        coins = stream(self._seed, "how the generator replies", name).integers(2, size=len(pairs))
        ways = np.array([DECODED, SAMPLED])[coins]
        known = self._read(path)
        found = known.get(name, [])
        if len(found) < len(pairs) and self._others is not None:
            theirs = self._read(self._others).get(name, [])
            if len(theirs) > len(found):
                found = theirs
                self._write(path, {**known, name: found})
        if len(found) < len(pairs):
            self._reporter.stage(f"the generator's replies, {name}", len(pairs), "contexts")
        while len(found) < len(pairs):
            rows = range(len(found), min(len(found) + _PART, len(pairs)))
            found = found + self._decoded(name, pairs, rows, ways)
            self._write(path, {**known, name: found})
            self._reporter.advance(len(found))
        return found, ways

    def _decoded(self, name: str, pairs: PairSplit, rows: range, ways: np.ndarray) -> list[np.ndarray]:
        found: dict[int, np.ndarray] = {}
        for way, decode in self._ways.items():
            chosen = [row for row in rows if ways[row] == way]
            seeds = [derive_seed(self._seed, "reply of the generator", name, row) for row in chosen]
            said = decode([pairs.utterances[int(pairs.pairs[row, 0])] for row in chosen], seeds) if chosen else []
            found |= {row: np.array(words, dtype=np.int64) for row, words in zip(chosen, said, strict=True)}
        return [found[row] for row in rows]

    def _read(self, path: Path) -> dict[str, list[np.ndarray]]:
        from parley.policies.core.checkpoint import load_state

        if not path.exists():
            return {}
        tensors, counters = load_state(path)
        if "origin" not in counters:
            # An older version wrote it; nobody knows what of.
            return {}
        if (origin := counters["origin"]) != self._origin:
            fix = "name a run with the same generator, decoder, seed and corpus"
            raise CheckpointError("these are replies of another origin", where=path, got=f"{origin}", fix=fix)
        return {
            name: np.split(tensors[f"{name}.words"].numpy(), np.cumsum(tensors[f"{name}.lengths"].numpy())[:-1])
            for name in counters["splits"]
        }

    def _write(self, path: Path, found: dict[str, list[np.ndarray]]) -> None:
        import torch

        from parley.policies.core.checkpoint import save_state

        tensors = {}
        for name, replies in found.items():
            tensors[f"{name}.words"] = torch.from_numpy(np.concatenate(replies))
            tensors[f"{name}.lengths"] = torch.tensor([len(reply) for reply in replies])
        save_state(path, tensors, {"splits": list(found), "origin": self._origin})
