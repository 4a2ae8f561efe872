"""Ask for a study and read its results: the service over trials."""
