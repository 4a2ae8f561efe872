"""What happened when a config was tried. Runs alone on a machine that has torch."""
