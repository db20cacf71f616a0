"""What is written down of what code did: the audit log. The host alone writes it; docs/audit.md has its format."""
