"""What TensorFlow runs eagerly: its operations, its compiled functions, and what asked for them."""
