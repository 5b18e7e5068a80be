"""Mechanisms: how a private copy of the default behaviour is drawn."""
