"""Jupyter notebooks of sessions: from what an executor has kept (`history`), or from the audit log (`logged`)."""
