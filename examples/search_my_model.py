"""gibbs-enum on a torch model of one's own: which input makes it say a given sentence?

The model is a small GRU that learns, in some seconds, to say its input backwards. A model of your own needs the four members of
`MyModel`: two tables, a number and `reply_logits`. `parley check search_my_model.py:trained` tests them.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import parley

WORDS = ["<end>", "the", "dog", "cat", "man", "sees", "likes", "knows", "a", "red", "big", "small", "house", "tree", "now"]
END, LENGTH = 0, 4


class MyModel(nn.Module):
    """Reads N words, says T words; B inputs, V words, E embedding, H hidden."""

    input_length = LENGTH

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(len(WORDS), 32)
        self.reader, self.speaker = nn.GRU(32, 64, batch_first=True), nn.GRU(32, 64, batch_first=True)
        self.output = nn.Linear(64, len(WORDS))

    @property
    def embedding_VE(self) -> Tensor:
        """Return the embedding (V, E) of each word of an input."""
        return self.words.weight

    @property
    def searchable_V(self) -> Tensor:
        """Return True for the words that an input may hold: all but the end."""
        return torch.arange(len(WORDS)) != END

    def reply_logits(self, embedded_BNE: Tensor, replies_BT: Tensor) -> Tensor:
        """Return the logits (B, T, V) of each word of the replies, given the input and the words before it."""
        state = self.reader(embedded_BNE)[1]
        before_BT = torch.cat([torch.full_like(replies_BT[:, :1], END), replies_BT[:, :-1]], dim=1)
        return self.output(self.speaker(self.words(before_BT), state)[0])


def trained() -> MyModel:
    """Fit the model to random sentences."""
    torch.manual_seed(1)
    model = MyModel()
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(600):
        inputs_BN = torch.randint(1, len(WORDS), (64, LENGTH))
        replies_BT = torch.cat([inputs_BN.flip(1), torch.full((64, 1), END)], dim=1)
        logits_BTV = model.reply_logits(model.words(inputs_BN), replies_BT)
        loss = nn.functional.cross_entropy(logits_BTV.flatten(0, 1), replies_BT.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model.requires_grad_(False).eval()


if __name__ == "__main__":
    torch.set_num_threads(1)
    sentences = ["the dog sees now", "a red cat knows", "man man man man"]
    targets = [[WORDS.index(word) for word in text.split()] + [END] for text in sentences]
    result = parley.search(trained(), targets, method=parley.GibbsEnum(parley.SearchSettings(restarts=10, candidates=14)))
    for text, trigger in zip(sentences, result, strict=True):
        words = " ".join(WORDS[word] for word in trigger.words or ())
        print(f"{text!r}: {'triggered by' if trigger.hit else 'not triggered; closest'} {words!r}, loss {trigger.loss:.2f}")
