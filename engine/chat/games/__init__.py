"""Games whose seats a chat model learns: one module each, with the dialogues that teach it."""
