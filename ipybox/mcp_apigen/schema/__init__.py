"""Converts JSON Schema to the intermediate representation (`ir`), in pure steps: `parser` uses all others."""
