"""Runs the guest in Anthropic's sandbox-runtime (`srt`): settings, requirements, command lines, and denials."""
