"""Alembic's environment. Each module of ``versions`` leads from one schema to the next.

A migration is never changed once released, and names no table of ``schema``: that one moves on.
On SQLite no table that others refer to may be dropped, not even to make it anew (batch mode):
foreign keys are on, and the rows that refer to it would go with it.
"""
