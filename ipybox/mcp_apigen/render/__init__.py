"""Renders the intermediate representation as the source of a tool's module, in pure steps: `module` uses all others."""
