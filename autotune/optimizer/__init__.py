"""Optuna's side of a study: the only door to optuna and its dashboard."""
