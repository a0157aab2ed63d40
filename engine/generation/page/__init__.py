"""The chapter of judges of generated replies."""
