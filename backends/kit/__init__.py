"""What adapters share."""
