"""Chapters and notebooks of a course: read, run under each framework, compared cell by cell."""
