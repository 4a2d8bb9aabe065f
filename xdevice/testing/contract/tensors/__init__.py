"""Promises about tensors: creating, placing and moving them, trees and models of them, files."""
