"""The audit log: a record of what code did. Only the application writes it; docs/audit.md describes its format."""
