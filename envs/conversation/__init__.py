"""A conversation with a chat bot that somebody attacks: `parley/Conversation-v1`."""
