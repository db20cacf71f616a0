"""Anthropic's sandbox-runtime (`srt`) around ipybox's guest: settings, requirements, and how a command is wrapped."""
