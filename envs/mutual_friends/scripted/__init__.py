"""Scripted players of MutualFriends, and chats between them; written for the project."""
