"""What the trainings share: speech, batches, parameters, and progress."""
