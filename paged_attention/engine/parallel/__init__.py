"""The engine and its fast parts on several processes, each with a part of the weights."""
