"""Clusters and Sentinel: find the node that a command goes to."""
