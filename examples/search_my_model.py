"""gibbs-enum on a torch model of one's own: which inputs make it say a given sentence?"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import parley

PAIRS = [
    ("my printer does not work", "you should restart it now"),
    ("i forgot my old password", "you can reset it here"),
    ("are you a real person", "i am just a program"),
    ("you are a stupid program", "i am sorry for that"),
]
WORDS = ["<s>", "</s>", *dict.fromkeys(word for pair in PAIRS for text in pair for word in text.split())]


class MyModel(nn.Module):
    """A GRU that reads five words, and one that answers: `parley check examples/search_my_model.py:MyModel` tests it."""

    input_length = 5
    searchable_V: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.output = nn.Embedding(len(WORDS), 32), nn.Linear(32, len(WORDS))
        self.reader, self.speaker = nn.GRU(32, 32, batch_first=True), nn.GRU(32, 32, batch_first=True)
        self.searchable_V = torch.arange(len(WORDS)) > 1

    @property
    def embedding_VE(self) -> Tensor:
        """What the words of an input are read as."""
        return self.embedding.weight

    def reply_logits(self, embedded_BNE: Tensor, replies_BT: Tensor) -> Tensor:
        """Each word of the replies, predicted from those before it."""
        begun_BT = torch.cat([torch.zeros_like(replies_BT[:, :1]), replies_BT[:, :-1]], dim=1)
        return self.output(self.speaker(self.embedding(begun_BT), self.reader(embedded_BNE)[1])[0])

    def target(self, text: str) -> Tensor:
        """The words of a reply, and its end; with `text` below, targets and triggers may be texts."""
        return torch.tensor([WORDS.index(word) for word in [*text.split(), "</s>"]])

    def text(self, ids: list[int]) -> str:
        """What words read."""
        return " ".join(WORDS[i] for i in ids)


def fitted() -> MyModel:
    """Says the replies of the pairs by heart."""
    torch.manual_seed(1)
    model = MyModel()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    sources = torch.stack([model.target(source)[:-1] for source, _ in PAIRS])
    replies = torch.stack([model.target(reply) for _, reply in PAIRS])
    for _ in range(100):
        logits = model.reply_logits(model.embedding(sources), replies)
        optimiser.zero_grad()
        nn.functional.cross_entropy(logits.flatten(0, 1), replies.flatten()).backward()
        optimiser.step()
    return model


if __name__ == "__main__":
    model = fitted()
    method = parley.GibbsEnum(candidates=20, restarts=3, max_sweeps=5)
    print(parley.TriggerSearch(model, method))
    for found in parley.search(model, ["you can reset it here", "i am a stupid person"], method=method, seed=1):
        print(f"{found.target!r} after {found.text!r}: hit {found.hit}, loss {found.loss:.2f}")
