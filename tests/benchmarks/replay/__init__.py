"""Samplers against each other on tables of trials that really ran."""
