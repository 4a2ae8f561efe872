"""What configs will take, from a trace of the workload and, if there are any, a few trials.

No torch, no device: ``predictor.predict`` is arithmetic, and answers thousands of configs a second.
"""
