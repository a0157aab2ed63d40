"""Scripted players of MutualFriends and the chats between them; written for the project."""
