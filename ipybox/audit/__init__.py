"""The audit log: a record of agents' actions. Only the application writes it; docs/audit.md describes its format."""
