"""From an admitted request to its answer: queues, the runner, the worker, and the models' micro-batches."""
