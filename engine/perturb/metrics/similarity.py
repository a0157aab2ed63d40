"""How alike two texts are: cosine of mean embeddings, and BLEU.

Sources:
  * Embedding average: Forgues et al. 2014; as released with Serban et al. 2017 (hed-dlg-truncated, embedding_metrics.py), used
    in table 4 of Niu & Bansal 2018 with each model's own embeddings.
  * BLEU of a pair: Papineni et al. 2002, NLTK's, n = 1..4 (as many as the reply has words), counts of n >= 2 smoothed by one
    (Lin & Och 2004), because most pairs of short replies share no four words in a row.

What belongs here: two texts in, a number out. Whose replies are compared is decided in `robustness.py` and the job.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

Vectors = Callable[[Sequence[str]], np.ndarray]
"""Embeddings of words, one row each; words without one have no row (`policies.core.responder.TrainableResponder.vectors`)."""


def average_similarity(texts: Sequence[Sequence[str]], others: Sequence[Sequence[str]], vectors: Vectors) -> list[float | None]:
    """Cosines of the mean embeddings of pairs of texts.

    Args:
        texts: words of what is compared with: clean contexts, or the replies to them.
        others: words of what is compared, in the same order.
        vectors: of words.

    Returns:
        -1 to 1 for each pair; None where no word of the text has a vector, 0 where none of the other's has.
    """
    assert len(texts) == len(others), f"pairs are wanted, got {len(texts)} and {len(others)} texts"
    if not texts:
        return []
    first, second = (_directions(several, vectors) for several in (texts, others))
    cosines = np.einsum("ne,ne->n", first, second).clip(-1.0, 1.0)
    return [float(cosine) if direction.any() else None for cosine, direction in zip(cosines, first, strict=True)]


def sentence_bleu(reply: Sequence[str], reference: Sequence[str]) -> float:
    """BLEU of a reply against another, 0 to 1; 1 exactly for equal ones."""
    from nltk.translate import bleu_score

    if list(reply) == list(reference):
        return 1.0
    if not reply or not reference:
        return 0.0
    smoothing = bleu_score.SmoothingFunction().method2
    return float(bleu_score.sentence_bleu([reference], reply, smoothing_function=smoothing, auto_reweigh=True))


def _directions(texts: Sequence[Sequence[str]], vectors: Vectors) -> np.ndarray:
    """The mean embedding of each text, of length 1; zeros where it has none."""
    sums = np.stack([vectors(words).astype(np.float64).sum(axis=0) for words in texts])
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    return np.divide(sums, lengths, out=np.zeros_like(sums), where=lengths > 0)
